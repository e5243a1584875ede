"""Rendering of the documentation's Markdown, with links between pages, images, included code and page lists.

The text is trusted, so rendering is not limited. Raw HTML is escaped, and style attributes, which the
content security policy forbids, are replaced by classes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import msgspec
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

_DIRECTIVE = re.compile(r"\{(\w+)\}\s*(.*)")
_OPTION = re.compile(r":([\w-]+):\s*(.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"(#{2,6}) +(.+?) *#*$")
# Backticks, and links with their text as the first group.
_MARKUP = re.compile(r"`|\[([^\]]*)\]\([^)]*\)")
_NO_ANCHOR = re.compile(r"[^\w\- ]")
_SENTENCE = re.compile(r"(.+?[.!?])(?=\s|$)", re.DOTALL)
_ALIGNMENT = re.compile(r"center|right")
_PROMPT = "$ "
# Endings of a command line that continues on the next one.
_CONTINUATIONS = ("\\", "|", "&&")
# Characters to parse for the title and first sentence.
_SUMMARY_CHARS = 4_000
# Lowest heading level in the table of contents.
_LOWEST_LISTED = 3


class GuideHeading(NamedTuple):
    """A heading of a page: its level, from 2, its anchor and its text."""

    level: int
    anchor: str
    text: str


class GuideImage(NamedTuple):
    """The URL of an image and its size in pixels."""

    url: str
    width: int
    height: int


class GuidePage(NamedTuple):
    """A page in a list; `name` is its path in docs/ without the suffix, `line` its first sentence."""

    name: str
    title: str
    line: str


class LinkResolver(Protocol):
    """Resolves the relative paths in a page's text; the methods return None if nothing is found."""

    def linked(self, path: str) -> GuidePage | None: ...

    def image(self, path: str) -> GuideImage | None: ...

    def source(self, path: str) -> str | None: ...

    def matching(self, pattern: str) -> Sequence[GuidePage]: ...


class RenderedGuide(msgspec.Struct, frozen=True):
    """The HTML of a page without its title, and its headings in order."""

    html: str
    headings: tuple[GuideHeading, ...]


def url(name: str) -> str:
    return f"/docs/{name}"


def title_and_summary(text: str) -> tuple[str, str]:
    """Return the title and first sentence of a text, with code in backticks."""
    texts = [
        _words(inline, "`")
        for opening, inline in _inline_pairs(_PARSER.parse(text[:_SUMMARY_CHARS]))
        if opening.type in {"heading_open", "paragraph_open"} and (opening.tag in {"h1", "p"})
    ]
    title, first = (*texts, "", "")[:2]
    sentence = _SENTENCE.match(first)
    return title.replace("`", ""), (sentence[0] if sentence else first).removesuffix(":")


def headings(text: str) -> tuple[GuideHeading, ...]:
    """Return the headings of a page as `render` does, from its lines, without parsing the page."""
    found: list[GuideHeading] = []
    anchor_counts: dict[str, int] = {}
    fence = ""
    for line in text.splitlines():
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        elif not fence and (heading := _HEADING.match(line)):
            words = _MARKUP.sub(lambda match: match[1] or "", heading[2]).strip()
            level, anchor = len(heading[1]), _anchor(words, anchor_counts)
            if level <= _LOWEST_LISTED:
                found.append(GuideHeading(level, anchor, words))
    return tuple(found)


def render(text: str, links: LinkResolver) -> RenderedGuide:
    """Render a page to HTML without its title."""
    tokens = _PARSER.parse(text)
    headings = tuple(_set_anchors(tokens))
    if tokens and tokens[0].tag == "h1":
        tokens = tokens[3:]
    env: dict[str, Any] = {"links": links, "tables": 0, "heading": "above the first heading"}
    return RenderedGuide(_PARSER.renderer.render(tokens, _PARSER.options, env), headings)


def _inline_pairs(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    return ((before, token) for before, token in pairwise(tokens) if token.children)


def _words(token: Token, tick: str = "") -> str:
    """Return the plain text of an inline token, with `tick` before and after code."""
    parts = [
        f"{tick}{child.content}{tick}" if child.type == "code_inline" else child.content or " "
        for child in token.children or ()
        if child.type in {"text", "code_inline", "softbreak"}
    ]
    return "".join(parts).strip()


def _set_anchors(tokens: Sequence[Token]) -> Iterator[GuideHeading]:
    """Set the same heading anchors as GitHub and Sphinx; yield the headings for the table of contents."""
    anchor_counts: dict[str, int] = {}
    for opening, inline in _inline_pairs(tokens):
        if opening.type != "heading_open" or opening.tag == "h1":
            continue
        words = _words(inline)
        anchor = _anchor(words, anchor_counts)
        opening.attrSet("id", anchor)
        opening.meta["words"] = words
        if int(opening.tag[1]) <= _LOWEST_LISTED:
            yield GuideHeading(int(opening.tag[1]), anchor, words)


def _anchor(words: str, counts: dict[str, int]) -> str:
    """Return the anchor of a heading, with a number from its second occurrence on the page."""
    anchor = _NO_ANCHOR.sub("", words.lower()).replace(" ", "-")
    count = counts[anchor] = counts.get(anchor, -1) + 1
    return f"{anchor}-{count}" if count else anchor


class _GuideRenderer(RendererHTML):
    """The renderer for tokens that differ from plain Markdown."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        env["heading"] = tokens[idx].meta["words"]
        return self.renderToken(tokens, idx, options, env)

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        href = str(tokens[idx].attrs.get("href", ""))
        if href.startswith("#"):
            return f'<a href="{html.escape(href)}">'
        if ":" in href:
            return f'<a href="{html.escape(href)}" rel="noopener noreferrer">'
        path, hash_, anchor = href.partition("#")
        guide = env["links"].linked(path)
        if guide is None:
            return "<a>"
        label = html.escape(guide.title) if tokens[idx + 1].type == "link_close" else ""
        return f'<a href="{html.escape(url(guide.name) + hash_ + anchor)}">{label}'

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        alt, src = html.escape(_words(tokens[idx])), str(tokens[idx].attrs.get("src", ""))
        image: GuideImage | None = env["links"].image(src)
        if image is None:
            return f"<em>{alt}</em>"
        size = f'width="{image.width}" height="{image.height}"'
        link = html.escape(image.url)
        return f'<a class="image" href="{link}"><img src="{link}" alt="{alt}" {size} loading="lazy"></a>'

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        env["tables"] += 1
        label = html.escape(f"Table {env['tables']}: {env['heading']}")
        return f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table>'

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</table></div>"

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        if not tokens[idx + 1].content:
            # Screen readers announce an empty header cell.
            return "<td>"
        return f'<th scope="col"{_alignment_class(tokens[idx])}>'

    def th_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</th>" if tokens[idx - 1].content else "</td>"

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<td{_alignment_class(tokens[idx])}>"

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        info, text = tokens[idx].info.strip(), tokens[idx].content
        directive = _DIRECTIVE.fullmatch(info)
        if directive is None:
            return _code(text, info)
        options = {match[1]: match[2] for line in text.splitlines() if (match := _OPTION.fullmatch(line))}
        if directive[1] == "literalinclude":
            return _include(env["links"].source(directive[2]), options)
        if directive[1] == "toctree":
            paths = [line for line in text.splitlines() if line and not _OPTION.fullmatch(line)]
            return _guide_list([guide for path in paths for guide in env["links"].matching(path)])
        return _code(f"{info}\n{text}", "")


def _alignment_class(token: Token) -> str:
    """Return the alignment as a class; the content security policy forbids style attributes."""
    match = _ALIGNMENT.search(str(token.attrs.get("style", "")))
    return f' class="{match[0]}"' if match is not None else ""


def _code(text: str, language: str) -> str:
    """Return a code block; in console sessions, commands are marked and can be copied without `$`."""
    lines = html.escape(text, quote=False).rstrip("\n").split("\n")
    if language == "console":
        lines = list(_console_lines(lines))
    return '<pre tabindex="0"><code>' + "\n".join(lines) + "</code></pre>\n"


def _console_lines(lines: Sequence[str]) -> Iterator[str]:
    continued = False
    for line in lines:
        has_prompt, continues = line.startswith(_PROMPT), continued
        continued = (has_prompt or continues) and html.unescape(line).endswith(_CONTINUATIONS)
        if has_prompt:
            yield f'<span class="prompt">{_PROMPT}</span>{line.removeprefix(_PROMPT)}'
        else:
            yield line if continues or not line else f'<span class="answer">{line}</span>'


def _include(text: str | None, options: Mapping[str, str]) -> str:
    """Return the lines of a file from `start-at` up to `end-before`, which is excluded."""
    lines = (text or "").split("\n")
    first = next((at for at, line in enumerate(lines) if options.get("start-at", "") in line), 0)
    end = options.get("end-before")
    last = next((at for at, line in enumerate(lines) if end and at > first and end in line), len(lines))
    return _code("\n".join(lines[first:last]), options.get("language", ""))


def _guide_list(guides: Sequence[GuidePage]) -> str:
    rows = [
        f'<li><a href="{html.escape(url(guide.name))}">{html.escape(guide.title)}</a></li>'
        for guide in guides
    ]
    return f"<ul>{''.join(rows)}</ul>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=_GuideRenderer)
    return parser.enable(["table", "strikethrough"])


_PARSER = _parser()
