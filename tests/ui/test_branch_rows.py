"""The rows of the branch map: lanes, lines, what is active, and what is folded."""

from collections.abc import Sequence
from datetime import UTC, datetime

from chat_core.models import MessageStatus, OutlineMessage, Role
from chat_core.ui.branch_rows import SMALL_TREE, MapRow, branch_rows

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Tree:
    """Messages by name; each `add` makes a new version under its parent, active unless told otherwise."""

    def __init__(self) -> None:
        self.messages: list[OutlineMessage] = []

    def add(
        self, name: str, parent: str = "", *, active: bool = True, role: Role = "USER", status: MessageStatus = "SENT"
    ) -> str:
        above = next((message.id for message in self.messages if message.uuid == parent), None)
        order = 1 + sum(message.parent_id == above for message in self.messages)
        self.messages.append(
            OutlineMessage(
                len(self.messages) + 1, name, above, active, order, role, status, f"text of {name}", "", "", NOW
            )
        )
        return name

    def add_run(self, count: int, parent: str = "", name: str = "m") -> str:
        for number in range(count):
            parent = self.add(f"{name}{number}", parent)
        return parent


def names(rows: Sequence[MapRow]) -> list[tuple[str, int]]:
    return [(row.message.uuid if row.message else "", row.lane) for row in rows]


def test_a_straight_session_is_one_line_from_top_to_bottom() -> None:
    tree = Tree()
    tree.add_run(3)
    rows = branch_rows(tree.messages)
    assert names(rows) == [("m0", 0), ("m1", 0), ("m2", 0)]
    assert [(row.link, row.goes_on) for row in rows] == [("none", True), ("lane", True), ("lane", False)]
    assert all(row.is_active for row in rows)


def test_the_chosen_version_goes_straight_on_and_the_others_stand_beside_it() -> None:
    tree = Tree()
    tree.add("q")
    tree.add("a1", "q", active=False)
    tree.add("b1", "a1")
    tree.add("a2", "q")
    tree.add("b2", "a2")
    tree.add("a3", "q", active=False)
    rows = branch_rows(tree.messages)
    assert names(rows) == [("q", 0), ("a1", 1), ("b1", 1), ("a3", 1), ("a2", 0), ("b2", 0)]
    assert [row.link for row in rows] == ["none", "fork", "lane", "fork", "lane", "lane"]
    assert [row.passing for row in rows] == [(), (0,), (0,), (0,), (), ()]
    assert [row.is_active for row in rows] == [True, False, False, False, True, True]
    assert [(row.version, row.versions) for row in rows] == [(1, 1), (1, 3), (1, 1), (3, 3), (2, 3), (1, 1)]


def test_a_branch_of_a_branch_has_a_lane_of_its_own() -> None:
    tree = Tree()
    tree.add("q")
    tree.add("a1", "q", active=False)
    tree.add("x1", "a1", active=False)
    tree.add("x2", "a1")
    tree.add("a2", "q")
    rows = branch_rows(tree.messages)
    assert names(rows) == [("q", 0), ("a1", 1), ("x1", 2), ("x2", 1), ("a2", 0)]
    assert rows[2].passing == (0, 1)


def test_two_first_messages_hang_on_a_common_beginning() -> None:
    tree = Tree()
    tree.add("one", active=False)
    tree.add("two")
    rows = branch_rows(tree.messages)
    assert names(rows) == [("", 0), ("one", 1), ("two", 0)]
    assert [row.link for row in rows] == ["none", "fork", "lane"]


def test_a_marker_stands_under_the_message_it_follows_and_is_no_version() -> None:
    tree = Tree()
    tree.add("q")
    tree.add("a", "q")
    tree.add("reset", "a", role="SYSTEM", status="RESET")
    tree.add("next", "a")
    rows = branch_rows(tree.messages)
    assert names(rows) == [("q", 0), ("a", 0), ("reset", 0), ("next", 0)]
    assert [row.versions for row in rows] == [1, 1, 1, 1]


def test_long_straight_runs_are_folded_and_unfold_in_steps() -> None:
    tree = Tree()
    tree.add_run(2000)
    rows = branch_rows(tree.messages)
    assert len(rows) == 5
    [fold] = [row for row in rows if row.folded]
    assert fold.folded + 4 == 2000
    more = branch_rows(tree.messages, unfolded={fold.fold: 50})
    [smaller] = [row for row in more if row.folded]
    assert (smaller.folded, smaller.fold, len(more)) == (fold.folded - 50, fold.fold, 55)
    assert len(branch_rows(tree.messages, unfolded={fold.fold: 5000})) == 2000


def test_forks_ends_and_what_went_wrong_are_never_folded_away() -> None:
    tree = Tree()
    end = tree.add_run(30)
    tree.add("failed", end, role="ASSISTANT", status="FAILED")
    middle = tree.add_run(30, "failed", "n")
    tree.add("left", middle, active=False)
    tree.add("right", middle)
    rows = branch_rows(tree.messages, keep="n7")
    shown = {name for name, _ in names(rows)}
    assert {"m0", "failed", "n7", middle, "left", "right"} <= shown
    assert sum(max(row.folded, 1) for row in rows) == len(tree.messages)


def test_two_thousand_messages_with_fifty_forks_stay_a_picture() -> None:
    tree = Tree()
    parent = ""
    for fork in range(50):
        parent = tree.add_run(20, parent, f"line{fork}-")
        tree.add_run(20, tree.add(f"other{fork}", parent, active=False), f"side{fork}-")
    rows = branch_rows(tree.messages)
    assert len(tree.messages) > 2000
    assert len(rows) < 500
    assert max(row.lane for row in rows) == 1
    assert sum(max(row.folded, 1) for row in rows) == len(tree.messages)
    active = [row for row in rows if row.is_active]
    assert {row.lane for row in active} == {0}


def test_a_small_tree_is_shown_whole() -> None:
    tree = Tree()
    tree.add_run(SMALL_TREE)
    assert len(branch_rows(tree.messages)) == SMALL_TREE
