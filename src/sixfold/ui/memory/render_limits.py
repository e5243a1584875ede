"""Limits on rendering Markdown: CPU time, tokens, link definitions and HTML, checked during rendering."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from sixfold.core.input_limits.budget import InputBudget, Limit

CPU_SECONDS = 1.0
HTML_CHARS = 100_000
HTML_PER_CHAR = 16
TOKENS = 500
TOKENS_PER_CHAR = 3
MAX_TOKENS = 50_000
DEFINITION_CHARS = 2_000
_BUDGET = "budget"
_EMBEDDED_IMAGE = re.compile(r"data:image/", re.IGNORECASE)


class RenderTooLarge(Exception):
    """Raised when a text exceeds a limit; the message completes a sentence after "because"."""


_LINKS = Limit(DEFINITION_CHARS, "it defines a link of more than {} characters", RenderTooLarge)


class _Tokens(list[Token]):
    def __init__(self, budget: InputBudget) -> None:
        super().__init__()
        self._budget = budget

    def append(self, token: Token) -> None:
        self._budget.spend(tokens=1)
        super().append(token)


def environment(chars: int, **values: Any) -> dict[str, Any]:
    """Return the parser environment for a text of `chars` characters, with its budget."""
    html = f"its HTML would be more than {HTML_PER_CHAR} times as long as its text"
    blocks = "it has too many list items, table cells or other blocks for its length"
    time = f"its layout takes more than {CPU_SECONDS:g} s of processor time"
    budget = InputBudget(
        cpu_ms=Limit(int(CPU_SECONDS * 1000), time, RenderTooLarge),
        tokens=Limit(min(MAX_TOKENS, TOKENS + TOKENS_PER_CHAR * chars), blocks, RenderTooLarge),
        html=Limit(HTML_CHARS + HTML_PER_CHAR * chars, html, RenderTooLarge),
        link=_LINKS,
    )
    return {_BUDGET: budget, **values}


def limit(parser: MarkdownIt) -> None:
    """Add limits to a parser; each text needs a separate `environment`."""
    block_rules = ["paragraph", "reference", "blockquote", "list"]
    parser.core.ruler.at("block", _blocks)
    parser.block.ruler.before("table", "step", _block_step, {"alt": block_rules})
    parser.inline.ruler.before("text", "step", _inline_step)


def _blocks(state: StateCore) -> None:
    budget: InputBudget = state.env[_BUDGET]
    state.tokens = _Tokens(budget)
    state.md.block.parse(state.src, state.md, state.env, state.tokens)
    for definition in state.env.get("references", {}).values():
        href, title = definition["href"], definition["title"]
        # Embedded images may be long; the limit on HTML covers their copies.
        budget.check(link=len(title) + (0 if _EMBEDDED_IMAGE.match(href) else len(href)))


def _block_step(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    state.env[_BUDGET].check_time()
    return False


def _inline_step(state: StateInline, silent: bool) -> bool:
    state.env[_BUDGET].check_time()
    return False


class BoundedRenderer(RendererHTML):
    """A renderer that stops at the limits of its environment."""

    def render(self, tokens: Sequence[Token], options: Any, env: Any) -> str:
        """Return the HTML of block tokens."""
        return self._joined(tokens, options, env)

    def renderInline(self, tokens: Sequence[Token], options: Any, env: Any) -> str:  # noqa: N802 - the base's name
        return self._joined(tokens, options, env)

    def _joined(self, tokens: Sequence[Token], options: Any, env: Any) -> str:
        budget: InputBudget = env[_BUDGET]
        parts: list[str] = []
        for number, token in enumerate(tokens):
            budget.check_time()
            if token.type == "inline":
                parts.append(self._joined(token.children or (), options, env))
                continue
            rule = self.rules.get(token.type, self.renderToken)
            part = str(rule(tokens, number, options, env))
            budget.spend(html=len(part))
            parts.append(part)
        return "".join(parts)
