"""Limits of one Markdown rendering: CPU time, tokens, link definitions and HTML, counted while they grow."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

CPU_SECONDS = 1.0
HTML_CHARS = 100_000
HTML_PER_CHAR = 16
TOKENS = 500
TOKENS_PER_CHAR = 3
MOST_TOKENS = 50_000
DEFINITION_CHARS = 2_000
_WORK = "work"
_EMBEDDED_IMAGE = re.compile(r"data:image/", re.IGNORECASE)


class RenderTooLarge(Exception):
    """A text that cannot be rendered within the limits; the message completes "because …"."""


class RenderWork:
    """What one rendering may still use, by the length of its text."""

    def __init__(self, chars: int) -> None:
        self._deadline = time.thread_time() + CPU_SECONDS
        self._html = HTML_CHARS + HTML_PER_CHAR * chars
        self.tokens = min(MOST_TOKENS, TOKENS + TOKENS_PER_CHAR * chars)

    def step(self) -> None:
        """Check the CPU time; each attempt to parse a token is one step."""
        if time.thread_time() > self._deadline:
            raise RenderTooLarge(f"its layout takes more than {CPU_SECONDS:g} s of processor time")

    def html(self, chars: int) -> None:
        """Count characters of HTML before they are joined."""
        self._html -= chars
        if self._html < 0:
            raise RenderTooLarge(f"its HTML would be more than {HTML_PER_CHAR} times as long as its text")


class _Tokens(list[Token]):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def append(self, token: Token) -> None:
        if len(self) >= self._most:
            raise RenderTooLarge("it has too many list items, table cells or other blocks for its length")
        super().append(token)


def environment(chars: int, **values: Any) -> dict[str, Any]:
    """The parser's environment for a text of so many characters, with its limits."""
    return {_WORK: RenderWork(chars), **values}


def limit(parser: MarkdownIt) -> None:
    """Make a parser count its work; each text needs an `environment` of its own."""
    after = ["paragraph", "reference", "blockquote", "list"]
    parser.core.ruler.at("block", _blocks)
    parser.block.ruler.before("table", "step", _block_step, {"alt": after})
    parser.inline.ruler.before("text", "step", _inline_step)


def _blocks(state: StateCore) -> None:
    state.tokens = _Tokens(state.env[_WORK].tokens)
    state.md.block.parse(state.src, state.md, state.env, state.tokens)
    for definition in state.env.get("references", {}).values():
        href, title = definition["href"], definition["title"]
        # An embedded image is as long as it is. The limit on HTML holds for its copies.
        if len(title) + (0 if _EMBEDDED_IMAGE.match(href) else len(href)) > DEFINITION_CHARS:
            raise RenderTooLarge(f"it defines a link of more than {DEFINITION_CHARS} characters")


def _block_step(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    state.env[_WORK].step()
    return False


def _inline_step(state: StateInline, silent: bool) -> bool:
    state.env[_WORK].step()
    return False


class BoundedRenderer(RendererHTML):
    """Renders tokens to HTML and stops at the limit of its environment."""

    def render(self, tokens: Sequence[Token], options: Any, env: Any) -> str:
        """The HTML of block tokens."""
        return self._joined(tokens, options, env)

    def renderInline(self, tokens: Sequence[Token], options: Any, env: Any) -> str:  # noqa: N802 - the base's name
        """The HTML of the tokens in a block."""
        return self._joined(tokens, options, env)

    def _joined(self, tokens: Sequence[Token], options: Any, env: Any) -> str:
        work: RenderWork = env[_WORK]
        parts: list[str] = []
        for number, token in enumerate(tokens):
            work.step()
            if token.type == "inline":
                parts.append(self._joined(token.children or (), options, env))
                continue
            rule = self.rules.get(token.type, self.renderToken)
            part = str(rule(tokens, number, options, env))
            work.html(len(part))
            parts.append(part)
        return "".join(parts)
