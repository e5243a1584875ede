"""Footnotes of pages: `[^1]` with its definition `[^1]: text`, and `^[text]`, shown below the text.

A definition without a reference is shown as well: a text that models read must not be hidden from people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

_NOTES = "footnotes"
# The numbers of the footnotes of which the first reference is in the HTML.
_REFERENCES = "note references"


def add_rules(parser: MarkdownIt) -> None:
    """Add the syntax of footnotes to a parser, which then emits the tokens that this module renders."""
    footnote_plugin(parser, move_to_end=False)
    parser.core.ruler.after("inline", "footnotes_to_end", _move_to_end)
    for name, rule in _RENDERED.items():
        parser.add_render_rule(name, rule)


def _move_to_end(state: StateCore) -> None:
    """Move the definitions to the end of the text, in the order of their first references."""
    notes: dict[str, Any] | None = state.env.get(_NOTES)
    if notes is None:
        return
    definitions, state.tokens = _separated(state.tokens)
    rows: list[dict[str, Any]] = list(notes.get("list", {}).values())
    used = {note.get("label") for note in rows}
    rows += [{"label": label, "count": 0} for label in definitions if label not in used]
    if not rows:
        return
    state.tokens.append(Token("footnote_block_open", "", 1))
    for number, note in enumerate(rows):
        meta = {"id": number}
        content = definitions.get(note["label"], []) if "label" in note else _paragraph(note)
        if note.get("count", 1):
            end = len(content) - bool(content and content[-1].type == "paragraph_close")
            content = [*content[:end], Token("footnote_anchor", "", 0, meta=meta), *content[end:]]
        state.tokens += [Token("footnote_open", "", 1, meta=meta), *content, Token("footnote_close", "", -1)]
    state.tokens.append(Token("footnote_block_close", "", -1))


def _separated(tokens: Sequence[Token]) -> tuple[dict[str, list[Token]], list[Token]]:
    """Return the tokens of each definition by its label, and the other tokens.

    Definitions can contain definitions, and those with the same label are joined.
    """
    definitions: dict[str, list[Token]] = {}
    remaining: list[Token] = []
    parts = [remaining]
    for token in tokens:
        if token.type == "footnote_reference_open":
            parts.append(definitions.setdefault(token.meta["label"], []))
        elif token.type == "footnote_reference_close":
            parts.pop()
        else:
            parts[-1].append(token)
    return definitions, remaining


def _paragraph(note: dict[str, Any]) -> list[Token]:
    """Return the tokens of a footnote that was written within its sentence."""
    inline = Token("inline", "", 0, children=note["tokens"], content=note["content"])
    return [
        Token("paragraph_open", "p", 1, block=True),
        inline,
        Token("paragraph_close", "p", -1, block=True),
    ]


def _reference(_: object, tokens: Sequence[Token], idx: int, options: object, env: Any) -> str:
    meta = tokens[idx].meta
    number, earlier = meta["id"] + 1, meta.get("subId", 0)
    own = f"note-ref-{number}" + (f"-{earlier + 1}" if earlier else "")
    if not earlier:
        env.setdefault(_REFERENCES, set()).add(number)
    # A link must not contain another link.
    if env.get("inside"):
        return f'<sup id="{own}">{number}</sup>'
    return f'<sup><a id="{own}" href="#note-{number}" aria-label="Note {number}">{number}</a></sup>'


def _open(_: object, tokens: Sequence[Token], idx: int, *__: object) -> str:
    return f'<li id="note-{tokens[idx].meta["id"] + 1}">'


def _anchor(_: object, tokens: Sequence[Token], idx: int, options: object, env: Any) -> str:
    """Return a link to the first reference of a footnote, unless that is in the alternative of an image."""
    number = tokens[idx].meta["id"] + 1
    if number not in env.get(_REFERENCES, ()):
        return ""
    label = f"Back to the reference of note {number}"
    return f' <a href="#note-ref-{number}" aria-label="{label}">↩\ufe0e</a>'


def _close(*_: object) -> str:
    return "</li>\n"


def _block_open(*_: object) -> str:
    return '<section class="notes" aria-label="Footnotes"><ol>\n'


def _block_close(*_: object) -> str:
    return "</ol></section>\n"


_RENDERED = {
    "footnote_ref": _reference,
    "footnote_open": _open,
    "footnote_anchor": _anchor,
    "footnote_close": _close,
    "footnote_block_open": _block_open,
    "footnote_block_close": _block_close,
}
