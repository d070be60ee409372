"""The picture of a session's whole tree, row by row: the active branch as a straight line, the others beside it.

Like the graph of a version control log: every row is a message (or a run of messages folded into one), and lanes are
the lines between them. The chosen child of a fork goes on in its parent's lane; the others begin lanes of their own
before it. So the active branch is always lane 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from chat_core.models import OutlineMessage

SMALL_TREE = 40
"""Trees of at most so many messages are shown whole."""
UNFOLD_STEP = 50
_KEPT_AT_START = 1
_KEPT_AT_END = 1
_SHORTEST_FOLD = 4
_QUIET = ("SENT", "SUCCESS")

Link = Literal["none", "lane", "fork"]


@dataclass(frozen=True, slots=True)
class MapRow:
    """One row. `folded` counts the messages behind it: 0 is the message itself, else `message` is the first of them."""

    message: OutlineMessage | None
    """None: the beginning of a session that has more than one first message."""
    lane: int
    passing: tuple[int, ...]
    """Lanes of other branches whose line goes on beside this row."""
    link: Link
    """Where its line comes from: from above in its lane, from the lane to the left (a fork), or from nowhere."""
    goes_on: bool
    """Its line goes on below, in its lane."""
    version: int
    versions: int
    is_active: bool
    """It is on the active branch."""
    folded: int = 0
    fold: str = ""
    """The name of the folded run, to unfold it."""


def branch_rows(
    outline: Sequence[OutlineMessage], *, unfolded: Mapping[str, int] | None = None, keep: str = ""
) -> list[MapRow]:
    """Return the rows from top to bottom.

    In a large tree the straight runs between forks are folded; `unfolded` says how many messages more of a folded run
    are wanted, by its name. The message `keep` is never folded away.
    """
    rows = list(_rows(outline))
    if len(outline) <= SMALL_TREE:
        return rows
    return list(_folded(rows, unfolded or {}, keep))


def _rows(outline: Sequence[OutlineMessage]) -> Iterator[MapRow]:
    children: dict[int | None, list[OutlineMessage]] = {}
    marks: dict[int | None, list[OutlineMessage]] = {}
    for message in outline:
        (marks if message.role == "SYSTEM" else children).setdefault(message.parent_id, []).append(message)
    roots = sorted(children.get(None, ()), key=lambda message: message.branch_order)
    open_lanes: set[int] = set()
    if len(roots) > 1:
        yield MapRow(None, 0, (), "none", True, 1, 1, True)
    # What is still to be drawn, the next one last: a message, its lane, and where its line comes from.
    waiting: list[tuple[OutlineMessage, int, Link, int, int, bool]] = []
    _plan(waiting, open_lanes, roots, 0, "lane" if len(roots) > 1 else "none", True)
    while waiting:
        message, lane, link, version, versions, is_active = waiting.pop()
        if link != "fork":
            open_lanes.discard(lane)
        below = sorted(children.get(message.id, ()), key=lambda child: child.branch_order)
        passing = tuple(sorted(open_lanes))
        notes = marks.get(message.id, [])
        yield MapRow(message, lane, passing, link, bool(below or notes), version, versions, is_active)
        for at, note in enumerate(notes):
            goes_on = bool(below) or at < len(notes) - 1
            yield MapRow(note, lane, passing, "lane", goes_on, 1, 1, is_active)
        _plan(waiting, open_lanes, below, lane, "lane", is_active)


def _plan(
    waiting: list[tuple[OutlineMessage, int, Link, int, int, bool]],
    open_lanes: set[int],
    versions: Sequence[OutlineMessage],
    lane: int,
    link: Link,
    is_active: bool,
) -> None:
    """Put the versions of one fork in line: the chosen one in the lane, after the others beside it."""
    if not versions:
        return
    chosen = next((message for message in versions if message.is_active), versions[-1])
    places = {message.id: at for at, message in enumerate(versions, start=1)}
    waiting.append((chosen, lane, link, places[chosen.id], len(versions), is_active and chosen.is_active))
    others = [message for message in versions if message is not chosen]
    waiting += [(message, lane + 1, "fork", places[message.id], len(versions), False) for message in reversed(others)]
    if others:
        open_lanes.add(lane)


def _folded(rows: Sequence[MapRow], unfolded: Mapping[str, int], keep: str) -> Iterator[MapRow]:
    run: list[MapRow] = []
    for row in rows:
        # A run is a stretch of rows that stand directly one under the other.
        if row.link == "lane" and row.versions == 1 and (not run or run[-1].lane == row.lane) and _may_fold(row, keep):
            run.append(row)
            continue
        yield from _fold(run, unfolded)
        run = []
        yield row
    yield from _fold(run, unfolded)


def _may_fold(row: MapRow, keep: str) -> bool:
    message = row.message
    return message is not None and message.status in _QUIET and message.uuid != keep and row.goes_on


def _fold(run: Sequence[MapRow], unfolded: Mapping[str, int]) -> Iterator[MapRow]:
    inner = run[_KEPT_AT_START : len(run) - _KEPT_AT_END]
    if len(inner) < _SHORTEST_FOLD or inner[0].message is None:
        yield from run
        return
    yield from run[:_KEPT_AT_START]
    name = inner[0].message.uuid
    wanted = unfolded.get(name, 0)
    yield from inner[:wanted]
    rest = inner[wanted:]
    if rest:
        first = rest[0]
        yield MapRow(
            first.message, first.lane, first.passing, "lane", True, 1, 1, first.is_active, folded=len(rest), fold=name
        )
    yield from run[len(run) - _KEPT_AT_END :]
