"""Makes foreign Markdown safe and faithful for `st.markdown`.

Streamlit's Markdown knows more than Markdown: colours, icons, emoji codes, arrows, single-dollar maths, Mermaid. In the
text of a model or a tool these are accidents. The text is parsed as GitHub's Markdown and written anew, every
character that could mean something more escaped; code keeps its text to the letter.

What changes on purpose: images become links (nothing is loaded from outside), links that lead anywhere but to the web
or a mailbox become text, raw HTML becomes text, Mermaid becomes code, `\\(x\\)`, `\\[x\\]` and `$$x$$` become
Streamlit's maths.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from chat_core.text import plain_words

LONGEST_MARKDOWN = 200_000
"""Longer texts (characters) are shown as plain text: parsing them would hold up the page."""

_SPLIT = ":small[]{}"
"""An empty element of Streamlit's own. It shows nothing and keeps two characters from being read as one sign."""

_BIDI_CONTROLS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C])

_ARROW = r"(?<![^\s])(?:<->|->|<-|--|>=|<=|~=)(?!\S)"
_COLON = r":(?=(?P<code>(?:[\w+-]+|material[/_]\w+):)|[A-Za-z:]|\Z)"
_NEEDS_REWRITING = re.compile(
    rf"[$<\[~]|\\[(\[]|:[A-Za-z:+-]|:\d+:|mermaid|{_ARROW}|[\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]",
    re.IGNORECASE,
)
_SPECIAL = re.compile(rf"(?P<arrow>{_ARROW})|(?P<colon>{_COLON})|[\\`*_\[\]<>#|~$!&{{}}]")
_LINE_START = re.compile(r"\A(?:(?P<sign>[-+=])|(?P<number>\d{1,9})(?P<dot>[.)]))")
_WEB_LINK = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_BARE_URL = re.compile(r"https?://[^\s<>\"`]*[^\s<>\"`.,;:!?'()\[\]{}*_~|\\]", re.IGNORECASE)
_TASK_BOX = re.compile(r"\[[ xX]\](?=\s)")
_LINE_BREAK_TAG = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LONGEST_FORMULA = 4000
_LONG_LINE = re.compile(r"([^\n]{1000})(?=[^\n])")
_ONE_DOLLAR = re.compile(r"\$(?![\s$\d{(])((?:\\.|[^$\\\n`]){1,1000}?)(?<![\s\\])\$(?![\w$])")
_LOOKS_LIKE_MATHS = re.compile(r"\\[A-Za-z]|\^|(?<![A-Za-z0-9])[A-Za-z]_[A-Za-z0-9{]|^[A-Za-z]$|^[A-Za-z]\s*[=<>+*/-]")


@lru_cache(maxsize=2048)
def safe_markdown(text: str, line_breaks: bool = False) -> str:
    """Return Markdown that `st.markdown` shows as `text` was meant, and as nothing more.

    With `line_breaks` a single line break stays one, as people expect of what they typed.
    """
    if len(text) > LONGEST_MARKDOWN:
        # Chromium does not paint a line of millions of characters at all.
        return _fence(_LONG_LINE.sub("\\1\n", text), "text")
    if not _NEEDS_REWRITING.search(text) and not (line_breaks and "\n" in text):
        return text
    text = text.translate(_BIDI_CONTROLS)
    return _Writer(line_breaks).document(_parser().parse(text))


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Return `text` for a label (button, expander, link): shown to the letter, on one line, without any Markdown."""
    return _escape(" ".join(text.translate(_BIDI_CONTROLS).split()), links=False)


@lru_cache(maxsize=4096)
def plain_part(text: str) -> str:
    """Return a piece of a label like `plain`, but with the spaces at its ends."""
    return _escape(text.translate(_BIDI_CONTROLS).replace("\n", " "), links=False, at_line_start=False)


def preview_words(text: str, longest: int) -> str:
    """Return the first words of a Markdown text without its marks, on one line, as plain text."""
    return plain_words(text[: 4 * longest])[:longest]


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": 40}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "maths", _inline_maths)
    parser.block.ruler.before(
        "fence", "maths_block", _block_maths, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # the writer decides, and shows the dead ones
    return parser


def _inline_maths(state: StateInline, silent: bool) -> bool:
    """Read `\\(x\\)`, `\\[x\\]`, `$$x$$`, and `$x$` where it can hardly be money or a shell variable."""
    text, start = state.src, state.pos
    if text[start] not in "\\$":
        return False
    pair = {"\\(": ("\\)", "maths"), "\\[": ("\\]", "display"), "$$": ("$$", "display")}.get(text[start : start + 2])
    if pair:
        closing, kind = pair
        end = text.find(closing, start + 2, min(state.posMax, start + _LONGEST_FORMULA))
        formula = text[start + 2 : end] if end > 0 else ""
    else:
        match = _ONE_DOLLAR.match(text, start, state.posMax)
        before = text[start - 1] if start else " "
        if not match or before.isalnum() or before in "\\$" or not _LOOKS_LIKE_MATHS.search(match[1]):
            return False
        closing, kind, formula, end = "$", "maths", match[1], match.end() - 1
    if not formula.strip() or "$" in formula:
        return False
    if not silent:
        state.push(kind, "", 0).content = formula
    state.pos = end + len(closing)
    return True


def _block_maths(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Read a formula that stands on lines of its own between `$$` and `$$` or `\\[` and `\\]`."""
    if state.sCount[start_line] - state.blkIndent >= 4:
        return False
    first = state.src[state.bMarks[start_line] + state.tShift[start_line] : state.eMarks[start_line]].strip()
    closing = {"$$": "$$", "\\[": "\\]"}.get(first[:2])
    if closing is None:
        return False
    lines, line = [first[2:]], start_line
    while not lines[-1].rstrip().endswith(closing):
        line += 1
        if line >= end_line or (state.sCount[line] < state.blkIndent and not state.isEmpty(line)):
            return False
        lines.append(state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]])
    formula = "\n".join(lines).rstrip().removesuffix(closing)
    if not formula.strip() or "$" in formula or closing in formula:
        return False
    if not silent:
        token = state.push("maths_block", "", 0)
        token.content, token.block, token.map = formula, True, [start_line, line + 1]
        state.line = line + 1
    return True


class _Writer:
    """Writes a token stream as Markdown in which nothing is left to chance."""

    def __init__(self, line_breaks: bool) -> None:
        self._break = "\\\n" if line_breaks else "\n"
        self._list_depth = 0

    def document(self, tokens: Sequence[Token]) -> str:
        return "\n\n".join(self._blocks(tokens))

    def _blocks(self, tokens: Sequence[Token]) -> list[str]:
        blocks: list[str] = []
        last_list, flip = "", False
        at = 0
        while at < len(tokens):
            token = tokens[at]
            end = _matching_end(tokens, at)
            inner = tokens[at + 1 : end]
            if token.type in ("bullet_list_open", "ordered_list_open"):
                flip = not flip if token.type == last_list else False
                blocks.append(self._list(token, inner, flip))
                last_list = token.type
            else:
                last_list = ""
                text = self._block(token, inner)
                if text:
                    blocks.append(text)
            at = end + 1
        return blocks

    def _block(self, token: Token, inner: Sequence[Token]) -> str:
        match token.type:
            case "paragraph_open":
                return self._paragraph(inner[0])
            case "heading_open":
                return f"{'#' * int(token.tag[1])} {self._one_line(inner[0])}"
            case "blockquote_open":
                return _prefix("\n\n".join(self._blocks(inner)), "> ", "> ") or ">"
            case "fence":
                language = token.info.strip().split()[0] if token.info.strip() else ""
                return _fence(token.content, language)
            case "code_block":
                return _fence(token.content, "")
            case "maths_block":
                return _display(token.content)
            case "hr":
                return "___"
            case "html_block":
                return "\\\n".join(_escape(line.strip()) for line in token.content.split("\n") if line.strip())
            case "table_open":
                return self._table(inner)
            case _:
                return _escape(token.content)

    def _paragraph(self, inline: Token) -> str:
        children = inline.children or []
        if len(children) == 1 and children[0].type == "display":
            return _display(children[0].content)
        return self._inline(children, self._break)

    def _one_line(self, inline: Token, in_table: bool = False) -> str:
        return self._inline(inline.children or [], " ", in_table)

    def _list(self, opening: Token, inner: Sequence[Token], flip: bool) -> str:
        number = int(opening.attrs.get("start", 1)) if opening.type == "ordered_list_open" else None
        items: list[str] = []
        loose = _is_loose(inner)
        at = 0
        while at < len(inner):
            end = _matching_end(inner, at)
            sign = (
                ("+" if flip else "-*"[self._list_depth % 2]) if number is None else f"{number}{')' if flip else '.'}"
            )
            self._list_depth += 1
            body = ("\n\n" if loose else "\n").join(self._blocks(_with_task_box(inner[at + 1 : end])))
            self._list_depth -= 1
            items.append(_prefix(body, f"{sign} ", " " * (len(sign) + 1)) or sign)
            number = None if number is None else min(number + 1, 999_999_999)
            at = end + 1
        return ("\n\n" if loose else "\n").join(items)

    def _table(self, inner: Sequence[Token]) -> str:
        rows: list[list[str]] = []
        marks: list[str] = []
        for at, token in enumerate(inner):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                rows[-1].append(self._one_line(inner[at + 1], in_table=True))
                if token.type == "th_open":
                    style = str(token.attrs.get("style", ""))
                    marks.append(
                        {"text-align:left": ":--", "text-align:right": "--:", "text-align:center": ":-:"}.get(
                            style, "---"
                        )
                    )
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, f"| {' | '.join(marks)} |")
        return "\n".join(lines)

    def _inline(self, tokens: Sequence[Token], soft_break: str, in_table: bool = False, inside: str = "") -> str:
        parts: list[str] = []
        at = 0
        while at < len(tokens):
            token = tokens[at]
            match token.type:
                case "text":
                    if token.level == -1:
                        parts.append(token.content)
                    else:
                        at_start = not any(parts) or parts[-1].endswith("\n")
                        parts.append(_escape(token.content, at_line_start=at_start))
                case "softbreak":
                    parts.append(soft_break)
                case "hardbreak":
                    parts.append(" " if soft_break == " " else "\\\n")
                case "code_inline":
                    parts.append(_code_span(token.content, in_table))
                case "maths" | "display":
                    parts.append(_formula(token.content, token.type, in_table))
                case "html_inline":
                    if _LINE_BREAK_TAG.fullmatch(token.content):
                        parts.append(" · " if in_table else " " if soft_break == " " else "\\\n")
                    else:
                        parts.append(_escape(token.content))
                case "image":
                    address = str(token.attrs.get("src", ""))
                    name = self._inline(token.children or [], " ", in_table) or _escape(address)
                    parts.append(_link(name, address))
                case "link_open":
                    end = _matching_end(tokens, at)
                    name = self._inline(tokens[at + 1 : end], soft_break, in_table, inside)
                    parts.append(_link(name, str(token.attrs.get("href", ""))))
                    at = end
                case "em_open" | "strong_open" | "s_open":
                    end = _matching_end(tokens, at)
                    sign = {"em_open": "*", "strong_open": "**", "s_open": "~~"}[token.type]
                    body = self._inline(tokens[at + 1 : end], soft_break, in_table, inside + token.type)
                    parts.append(body if token.type in inside else _emphasis(sign, body, "".join(parts[-1:])))
                    at = end
                case _:
                    parts.append(_escape(token.content))
            at += 1
        return "".join(parts)


def _matching_end(tokens: Sequence[Token], at: int) -> int:
    """Return where the element that begins at `at` ends: the index of its closing token, or `at` itself."""
    if tokens[at].nesting != 1:
        return at
    depth = 0
    for index in range(at, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    return len(tokens) - 1


def _is_loose(items: Sequence[Token]) -> bool:
    """Tell whether blank lines stand between the items' blocks; where nothing shows the difference, they may."""
    depth = 0
    for token in items:
        depth += token.nesting
        if token.type == "paragraph_open" and depth == 2 and token.hidden:
            return False
    return True


def _with_task_box(tokens: Sequence[Token]) -> Sequence[Token]:
    """Keep the `[x]` of a task list, which the parser takes for text."""
    if len(tokens) < 2 or tokens[1].type != "inline" or not tokens[1].children:
        return tokens
    first = tokens[1].children[0]
    box = _TASK_BOX.match(first.content) if first.type == "text" else None
    if box is None:
        return tokens
    mark = Token("text", "", 0, content=box[0].replace("X", "x"), level=-1)
    rest = first.copy(content=first.content[box.end() :])
    inline = tokens[1].copy(children=[mark, rest, *tokens[1].children[1:]])
    return [tokens[0], inline, *tokens[2:]]


def _prefix(text: str, first: str, others: str) -> str:
    lines = text.split("\n")
    return "\n".join(
        (first if at == 0 else others if line else others.rstrip()) + line for at, line in enumerate(lines)
    )


def _fence(code: str, language: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    ticks = "`" * max(3, longest + 1)
    name = re.sub(r"[^\w+#.-]", "", language)
    language = "text" if name.lower() == "mermaid" else name
    end = "" if not code or code.endswith("\n") else "\n"
    return f"{ticks}{language}\n{code}{end}{ticks}"


def _emphasis(sign: str, body: str, before: str) -> str:
    """Put emphasis round `body`, kept apart from signs of its kind that stand next to it."""
    apart = _SPLIT if before.endswith(sign[0]) and not before.endswith("\\" + sign[0]) else ""
    start = _SPLIT if body.startswith(sign[0]) else ""
    end = _SPLIT if body.endswith(sign[0]) and not body.endswith("\\" + sign[0]) else ""
    return f"{apart}{sign}{start}{body}{end}{sign}"


def _code_span(code: str, in_table: bool) -> str:
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if code.startswith("`") or code.endswith("`") or (code[:1] == code[-1:] == " " and code.strip()) else ""
    return f"{ticks}{pad}{code.replace('|', chr(92) + '|') if in_table else code}{pad}{ticks}"


def _formula(formula: str, kind: str, in_table: bool) -> str:
    text = " ".join(formula.split())
    if in_table:
        text = text.replace("\\|", "\\Vert ").replace("|", "\\vert ").strip()
    sign = "$$" if kind == "display" else "$"
    return f"{sign}{text}{sign}"


def _display(formula: str) -> str:
    lines = [line for line in formula.strip().split("\n") if line.strip()]
    return "$$\n{}\n$$".format("\n".join(lines))


def _link(name: str, address: str) -> str:
    if not _WEB_LINK.match(address):
        told = name == _escape(address) or not address
        return _SPLIT + (name if told else f"{name} ({_escape(address, links=False)})")
    target = re.sub(r"[<>\\\s]", lambda found: f"%{ord(found[0]):02X}" if ord(found[0]) < 128 else found[0], address)
    target = target.replace(":material/", "%3Amaterial/").replace("$", "%24")
    return f"[{name}](<{target}>)"


def _escape(text: str, links: bool = True, at_line_start: bool = True) -> str:
    """Return Markdown that shows `text` and nothing else; web addresses in it may be made links."""
    if not links:
        return _escape_words(text, at_line_start)
    parts: list[str] = []
    last = 0
    for found in _BARE_URL.finditer(text):
        parts.append(_escape_words(text[last : found.start()], at_line_start and last == 0))
        parts.append(_link(_escape_words(found[0], False), found[0]))
        last = found.end()
    parts.append(_escape_words(text[last:], at_line_start and last == 0))
    return "".join(parts)


def _escape_words(text: str, at_line_start: bool) -> str:
    """Escape every character with a meaning, and split the signs that Streamlit would draw as another."""
    escaped = _SPECIAL.sub(_escape_special, text)
    return _LINE_START.sub(_escape_line_start, escaped.lstrip(" \t")) if at_line_start else escaped


def _escape_special(found: re.Match[str]) -> str:
    if found["arrow"]:
        return _SPLIT.join(f"\\{character}" for character in found["arrow"])
    if found["colon"]:
        return "\\:" + (_SPLIT if found["code"] else "")
    return "\\" + found[0]


def _escape_line_start(found: re.Match[str]) -> str:
    return f"\\{found['sign']}" if found["sign"] else f"{found['number']}\\{found['dot']}"
