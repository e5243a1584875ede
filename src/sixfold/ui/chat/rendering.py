"""Rendering of a model's Markdown to safe HTML, whole or while it is still being written.

Links and images follow the rules of the memory's pages: raw HTML is escaped, and images of other hosts become
links.
"""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from sixfold.core.concurrency.single_thread import SingleThread
from sixfold.ui.chat import code_blocks
from sixfold.ui.memory import formulas, render_limits
from sixfold.ui.memory.markdown import PageRenderer, RenderContext, is_allowed_url

MAX_CHARS = 200_000
_CACHE_CHARS = 16 * 2**20
# A text of this length is rendered within 20 ms.
_LOOP_CHARS = 2_000
# The first code block of a language loads its lexer, which takes up to 20 ms.
_CODE = re.compile("```|~~~")
_CONTEXT = RenderContext()
_TOP = "top"
# Blocks that end at an empty line; lists continue after it.
_SIMPLE = frozenset({"paragraph_open", "heading_open", "hr", "table_open", "formula"})
# Blocks that are rendered while they are still being written.
_GROWING = frozenset({"bullet_list_open", "ordered_list_open", "table_open", "blockquote_open"})
_RENDERER = SingleThread("chat-text")


class _ChatRenderer(PageRenderer):
    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        language = token.info.strip().partition(" ")[0][:40]
        label = f' data-language="{html.escape(language)}"' if language else ""
        code = code_blocks.highlight(token.content, language)
        return f'<pre tabindex="0"{label}><code>{code}</code></pre>\n'

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<{_heading(tokens[idx], env)}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"</{_heading(tokens[idx], env)}>\n"


def _heading(token: Token, env: Any) -> str:
    """Return the tag of a heading, whose level is below that of the message's heading (2)."""
    return f"h{min(6, int(token.tag[1]) - env[_TOP] + 3)}"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_ChatRenderer)
    parser.enable(["table", "strikethrough"])
    parser.validateLink = is_allowed_url
    formulas.add_rules(parser)
    render_limits.limit(parser)
    return parser


def _block_parser() -> MarkdownIt:
    """Return a parser that finds blocks only."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    formulas.add_rules(parser)
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


_PARSER, _BLOCK_PARSER = _parser(), _block_parser()


def render(text: str) -> str:
    """Return a text as HTML; a text that exceeds a limit is shown as plain text."""
    if len(text) > MAX_CHARS:
        return _plain(text, f"it has {len(text)} characters (limit {MAX_CHARS})")
    env = render_limits.environment(len(text), context=_CONTEXT)
    try:
        tokens = _PARSER.parse(text, env)
        env[_TOP] = min((int(each.tag[1]) for each in tokens if each.type == "heading_open"), default=1)
        return _PARSER.renderer.render(tokens, _PARSER.options, env)
    except render_limits.RenderTooLarge as error:
        return _plain(text, str(error))
    except RecursionError:
        return _plain(text, "its parts are nested too deeply")


def _plain(text: str, reason: str) -> str:
    note = f'<p class="note">This text is shown without layout because {html.escape(reason)}.</p>'
    return f'{note}<pre class="plain" tabindex="0"><code>{html.escape(text)}</code></pre>'


class RenderedTexts:
    """Renders texts, and caches the HTML of recently used ones."""

    def __init__(self) -> None:
        self._html: OrderedDict[str, str] = OrderedDict()
        self._chars = 0

    async def html(self, text: str) -> str:
        known = self._html.get(text)
        if known is not None:
            self._html.move_to_end(text)
            return known
        html = await rendered(text)
        if text not in self._html:
            self._html[text] = html
            self._chars += len(text) + len(html)
        while self._chars > _CACHE_CHARS:
            old_text, old_html = self._html.popitem(last=False)
            self._chars -= len(old_text) + len(old_html)
        return html


async def rendered(text: str) -> str:
    """Return a text as HTML; a long text, and one with code, is rendered in a separate thread."""
    if len(text) <= _LOOP_CHARS and not _CODE.search(text):
        return render(text)
    return await _RENDERER.run(render, text)


class TextGrowth(NamedTuple):
    """The lengths in characters of the `complete` blocks of a growing text, and of all complete `lines`."""

    complete: int
    lines: int


def growth(text: str) -> TextGrowth:
    """Return the length of the complete blocks, and the length with the complete lines of a list or table."""
    try:
        tokens = [
            each
            for each in _BLOCK_PARSER.parse(text, {formulas.GROWING: True})
            if each.level == 0 and each.map is not None
        ]
    except RecursionError:
        return TextGrowth(0, 0)
    if not tokens:
        return TextGrowth(0, 0)
    last = tokens[-1]
    starts = _line_starts(text)
    first, end = last.map or (0, 0)
    complete = starts[min(first, len(starts) - 1)] if len(tokens) > 1 else 0
    is_closed = last.type in _SIMPLE or (last.type == "fence" and end - first == last.content.count("\n") + 2)
    if is_closed and text.endswith("\n\n"):
        return TextGrowth(len(text), len(text))
    grown = text.rfind("\n") + 1 if last.type in _GROWING else 0
    return TextGrowth(complete, max(complete, grown))


def _line_starts(text: str) -> list[int]:
    starts = [0]
    while (at := text.find("\n", starts[-1])) >= 0:
        starts.append(at + 1)
    return starts


class GrowingText:
    """The HTML of a text that is being written: complete blocks, a growing one, and unrendered text."""

    def __init__(self) -> None:
        self.text = ""
        self.blocks: list[str] = []
        self.growing = ""
        # The start of the text that is displayed without rendering.
        self.rendered_end = 0
        self._complete = 0
        self.next_update = 0.0
        self._is_behind = False
        self._rendering = asyncio.Lock()

    @property
    def open(self) -> str:
        """The end of the text that is not rendered yet."""
        return self.text[self.rendered_end :]

    def push(self, piece: str) -> None:
        """Add a piece of text without rendering it."""
        self.text += piece

    async def update(self, piece: str) -> bool:
        """Render the complete blocks after a piece was added; return whether the HTML has changed."""
        self._is_behind = self._is_behind or "\n" in piece
        return time.monotonic() >= self.next_update and await self.catch_up()

    async def catch_up(self) -> bool:
        """Render the lines whose rendering was postponed; return whether the HTML has changed."""
        async with self._rendering:
            return self._is_behind and await self._render()

    async def _render(self) -> bool:
        self._is_behind = False
        started = time.monotonic()
        rest = self.text[self._complete :]
        grown = growth(rest) if len(rest) <= _LOOP_CHARS else await _RENDERER.run(growth, rest)
        complete, lines = self._complete + grown.complete, self._complete + grown.lines
        block = await rendered(self.text[self._complete : complete]) if grown.complete else ""
        growing = await rendered(self.text[complete:lines]) if complete < lines else ""
        changed = bool(block) or lines != self.rendered_end
        if block:
            self.blocks.append(block)
        self.growing, self.rendered_end, self._complete = growing, lines, complete
        # Render long blocks less often to limit the fraction of time spent on rendering.
        self.next_update = time.monotonic() + max(0.05, 20 * (time.monotonic() - started))
        return changed
