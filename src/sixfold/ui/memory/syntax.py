"""Syntax beyond CommonMark: wiki links, highlights, tags, callouts and tasks, as in Obsidian."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from sixfold.core.memory import markdown, slugs

_WIKI = re.compile(r"\[\[([^\[\]\n]{1,500})\]\]")
_CALLOUT = re.compile(r"\[!([a-z][a-z-]{0,20})\][+-]?[ \t]*", re.IGNORECASE)
_HIGHLIGHT = re.compile(r"==(?=[^\s=])([^=\n]{1,500}?)(?<=\S)==(?!=)")
_ATTACHMENT = re.compile(r"\.(?!md$)[a-z0-9]{2,6}$", re.IGNORECASE)
_TASK = re.compile(r"\[([ xX])\][ \t]+")
# The name of a block at its end, to which links of Obsidian can lead.
_BLOCK_NAME = re.compile(r"(?:^|[ \t])\^[a-zA-Z0-9-]{1,64}$")
_MAX_LABEL = 200


def add_rules(parser: MarkdownIt) -> None:
    """Add the inline syntax to a parser, as tokens `wiki`, `highlight` and `tag`."""
    parser.inline.ruler.before("link", "wiki", _wiki)
    parser.inline.ruler.before("link", "highlight", _highlight)
    parser.inline.ruler.before("text", "tag", _tag)


def anchor(heading: str) -> str:
    return "s-" + (slugs.loosely(heading.replace("/", "-")) or "section")


def convert_blocks(tokens: Sequence[Token]) -> None:
    """Mark callouts, add a token `task` to list items that begin with a box, and hide the names of blocks."""
    _convert_callouts(tokens)
    for token in tokens:
        if token.children and token.children[-1].type == "text":
            last = token.children[-1]
            last.content = _BLOCK_NAME.sub("", last.content)
    for before, paragraph, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if before.type == "list_item_open" and paragraph.type == "paragraph_open":
            _convert_task(inline)


def _convert_task(inline: Token) -> None:
    words = inline.children or []
    match = _TASK.match(words[0].content) if words and words[0].type == "text" else None
    if match is None:
        return
    words[0].content = words[0].content[match.end() :]
    task = Token("task", "", 0, content=_label(inline.content[match.end() :]))
    task.meta = {"done": match[1] != " ", "line": inline.map[0] if inline.map else 0}
    inline.children = [task, *words]


def _convert_callouts(tokens: Sequence[Token]) -> None:
    """Turn quotations that start with `[!tip] Title` into callouts, as in Obsidian."""
    for number, token in enumerate(tokens[:-2]):
        words = tokens[number + 2].children if token.type == "blockquote_open" else None
        match = _CALLOUT.match(words[0].content) if words else None
        if words and match is not None:
            token.attrSet("class", "callout")
            tokens[number + 2].children = _callout_title(words, match)


def _callout_title(words: list[Token], match: re.Match[str]) -> list[Token]:
    """Make the first line of a callout bold; if it is empty, use the callout's kind."""
    end = next((at for at, word in enumerate(words) if word.type == "softbreak"), len(words))
    words[0].content = words[0].content[match.end() :] or (match[1].capitalize() if end == 1 else "")
    rest = [Token("hardbreak", "br", 0), *words[end + 1 :]] if words[end:] else []
    return [Token("strong_open", "strong", 1), *words[:end], Token("strong_close", "strong", -1), *rest]


def _wiki(state: StateInline, silent: bool) -> bool:
    """Parse `[[name]]`, `[[name|text]]`, `[[type::name]]`, `[[#heading]]` and `![[file.png]]`."""
    start = state.pos
    embedded = state.src.startswith("![[", start)
    if not embedded and not state.src.startswith("[[", start):
        return False
    match = _WIKI.match(state.src, start + embedded)
    if match is None:
        return False
    name, _, text = match[1].partition("|")
    heading = name.partition("#")[2].strip()
    heading_link = (
        markdown.NamedReference(heading, "", "", text.strip() or heading)
        if heading[:1] not in {"", "^"}
        else None
    )
    reference = markdown.parse_reference(match[1]) or heading_link
    if reference is None:
        return False
    if not silent:
        token = state.push("wiki", "", 0)
        token.meta = {
            "name": reference.name,
            "target": reference.target,
            "type": reference.type,
            "text": reference.text,
            "heading": heading_link.name if heading_link is not None else "",
            "anchor": f"#{anchor(heading)}" if heading_link is not None else "",
            "file": embedded and _ATTACHMENT.search(reference.name) is not None,
        }
    state.pos = match.end()
    return True


def _highlight(state: StateInline, silent: bool) -> bool:
    """Parse `==highlighted text==`."""
    match = _HIGHLIGHT.match(state.src, state.pos) if state.src.startswith("==", state.pos) else None
    if match is None:
        return False
    if not silent:
        state.push("highlight", "mark", 0).content = match[1]
    state.pos = match.end()
    return True


def _label(text: str) -> str:
    """Return the first line of a task without Markdown syntax."""
    return markdown.label(text.partition("\n")[0][:_MAX_LABEL])


def _tag(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] != "#":
        return False
    match = markdown.TAG.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        state.push("tag", "", 0).content = match[1]
    state.pos = match.end()
    return True
