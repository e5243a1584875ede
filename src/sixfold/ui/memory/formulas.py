"""LaTeX formulas in Markdown, converted to MathML.

Text in `$…$` and `\\(…\\)` is an inline formula, text in `$$…$$` and `\\[…\\]` a formula in a block.
"""

from __future__ import annotations

import functools
import html
import re
from xml.etree import ElementTree

from latex2mathml import converter, exceptions
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

MAX_CHARS = 1000
# A key of the parser's environment, set while the text is being written: a formula may end later.
GROWING = "growing"
_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
_ELEMENTS = re.compile(
    r"math|mrow|mi|mn|mo|ms|mtext|mspace|mfrac|msqrt|mroot|mstyle|merror|mpadded|mphantom|mfenced|"
    r"menclose|msub|msup|msubsup|munder|mover|munderover|mmultiscripts|mprescripts|none|mtable|mtr|"
    r"mtd|mlabeledtr"
)
_ATTRIBUTES = re.compile(
    r"display|displaystyle|scriptlevel|mathvariant|stretchy|fence|form|separator|symmetric|"
    r"movablelimits|largeop|lspace|rspace|minsize|maxsize|linethickness|accent|accentunder|"
    r"columnalign|rowspacing|columnspacing|columnlines|rowlines|width|height|depth|notation|xmlns"
)
# Exceptions that the converter raises for invalid formulas, including builtin ones.
_MISTAKES = (
    *[kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)],
    *(ElementTree.ParseError, ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration),
    *(TypeError, ValueError),
)
# A price such as $5 is not a formula: spaces inside the delimiters and a digit after them are excluded.
_INLINE = re.compile(
    rf"\$(?![\s$])([^$\n]{{1,{MAX_CHARS}}}?)(?<![\s\\])\$(?![\d$])|\\\(([^\n]{{1,{MAX_CHARS}}}?)\\\)"
    rf"|\$\$([^$]{{1,{MAX_CHARS}}}?)\$\$|\\\[([^\n]{{1,{MAX_CHARS}}}?)\\\]"
)
ElementTree.register_namespace("", _NAMESPACE[1:-1])
_ENDS = {"$$": "$$", "\\[": "\\]"}


def add_rules(parser: MarkdownIt) -> None:
    """Add the syntax of formulas to a parser, which then emits tokens `formula`."""
    parser.inline.ruler.before("escape", "formula", _inline)
    blocks = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", "formula_block", _block, {"alt": blocks})


@functools.lru_cache(1024)
def to_mathml(latex: str, *, block: bool) -> str:
    """Return a formula as MathML, or as code if it cannot be converted."""
    display = "block" if block else "inline"
    if len(latex) <= MAX_CHARS:
        try:
            root = ElementTree.fromstring(converter.convert(latex, display=display))  # noqa: S314 - the converter wrote it
            _sanitize(root)
            return ElementTree.tostring(root, encoding="unicode")
        except _MISTAKES:
            return _code(latex)
    return _code(latex)


def _code(latex: str) -> str:
    return f'<code class="formula">{html.escape(latex)}</code>'


def _sanitize(element: ElementTree.Element) -> None:
    """Remove all elements and attributes that are not presentational, such as links."""
    for name in [each for each in element.attrib if not _ATTRIBUTES.fullmatch(each)]:
        del element.attrib[name]
    for child in tuple(element):
        if _ELEMENTS.fullmatch(child.tag.removeprefix(_NAMESPACE)):
            _sanitize(child)
        else:
            element.remove(child)


def _inline(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\":
        return False
    match = _INLINE.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content = next(group for group in match.groups() if group is not None)
        token.block = match[3] is not None or match[4] is not None
    state.pos = match.end()
    return True


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a formula that begins with a line `$$` or `\\[` and ends with a line that closes it."""
    first = _line(state, start)
    closing = _ENDS.get(first[:2])
    if closing is None or state.is_code_block(start) or closing in first[2:]:
        return False
    line = start + 1
    while line < end and not _line(state, line).endswith(closing):
        line += 1
    if line == end and GROWING not in state.env:
        return False
    if not silent and line == end:
        state.push("open_formula", "", 0).map = [start, end]
    elif not silent:
        token = state.push("formula", "", 0)
        body = state.getLines(start, line + 1, state.blkIndent, False).strip()
        token.content, token.block, token.map = body[2:-2].strip(), True, [start, line + 1]
    state.line = min(line + 1, end)
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip()
