"""Rendering of untrusted Markdown to safe HTML, without raw HTML, scripts or requests to other hosts.

Links may use http, https and mailto, or point to this server's pages and files. Images are embedded only if
this server stores them; others become links.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from sixfold.core.memory import markdown, slugs
from sixfold.core.memory.import_export import attachments
from sixfold.core.memory.import_export.attachments import PageFile
from sixfold.core.memory.mentions import PageMention
from sixfold.ui.memory import footnotes, formulas, render_limits, syntax

MAX_CHARS = 100_000
_MAX_BRACKETS = 10_000
_MAX_HEADINGS = 200
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_EMBEDDED_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,", re.IGNORECASE)
_OWN_LINKS = ("/memory/", "/media/", "/uploads/", "/predictions/", "/docs")
_SIZE = re.compile(r"#([0-9]{1,5})x([0-9]{1,5})\Z")
_OWN_IMAGES = ("/media/", "/uploads/")
_EXTERNAL = 'rel="noopener noreferrer nofollow ugc"'
_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\]{1,2000}[^\s<>\"'`\\.,;:!?)\]}*_]")


class RenderContext(msgspec.Struct, frozen=True):
    """The context of a text: its page, the pages that its names refer to, its account, and write access.

    With `has_tasks`, the boxes of tasks are buttons of the form `tasks`. Links to pages begin with `base`.
    """

    slug: str = ""
    title: str = ""
    mentions: Mapping[str, PageMention] | None = None
    may_write: bool = False
    account_id: str = ""
    has_tasks: bool = False
    files: Mapping[str, PageFile] | None = None
    base: str = "/memory"


class PageHeading(NamedTuple):
    """A heading of a text: its level, from 2, its anchor and its text."""

    level: int
    anchor: str
    text: str


class RenderedPage(msgspec.Struct, frozen=True):
    """A text as HTML, and its headings in order."""

    html: str
    headings: tuple[PageHeading, ...] = ()


def page_path(slug: str, action: str = "", base: str = "/memory") -> str:
    """Return the URL path of a page, or of an action on it."""
    return f"{base}/{quote(slug)}{f'/~{action}' if action else ''}"


def render(body: str, context: RenderContext) -> RenderedPage:
    """Render a text to HTML without a first heading that repeats the title.

    A text that is too long, or whose layout exceeds `render_limits`, is shown as plain text with the reason.
    """
    try:
        return _render(body, context)
    except render_limits.RenderTooLarge as error:
        return _plain_text(body, str(error))
    except RecursionError:
        return _plain_text(body, "its parts are nested too deeply")


def _render(body: str, context: RenderContext) -> RenderedPage:
    if len(body) > MAX_CHARS:
        raise render_limits.RenderTooLarge(f"it has {len(body)} characters (limit {MAX_CHARS})")
    if body.count("[") > _MAX_BRACKETS:
        raise render_limits.RenderTooLarge(f"it has more than {_MAX_BRACKETS} opening brackets")
    body = markdown.without_comments(body)
    env = render_limits.environment(len(body), context=context)
    tokens = _without_title(_PARSER.parse(body, env), context.title)
    headings = _set_anchors(tokens)
    syntax.convert_blocks(tokens)
    return RenderedPage(_PARSER.renderer.render(tokens, _PARSER.options, env), headings)


def _plain_text(body: str, reason: str) -> RenderedPage:
    note = f'<p class="note">This text is shown without layout because {html.escape(reason)}.</p>'
    text = html.escape(body, quote=False)
    return RenderedPage(f'{note}<pre class="plain" tabindex="0"><code>{text}</code></pre>')


# -- allowed links -------------------------------------------------------------------------------


# Browsers treat an encoded dot as a dot when they resolve a path.
_DOT = re.compile("%2e", re.IGNORECASE)


def is_allowed_url(url: str) -> bool:
    """Return whether a text may link to a URL or embed it as an image."""
    # The parser percent-encodes URLs, which browsers decode differently.
    plain = unquote(url)
    if "\\" in plain or plain.startswith("//") or any(ord(char) < 32 for char in plain):
        return False
    scheme = _SCHEME.match(url)
    if scheme is not None:
        return scheme[0].lower() in {"http:", "https:", "mailto:"} or _EMBEDDED_IMAGE.match(url) is not None
    if _SCHEME.match(plain) or ":" in url.partition("/")[0]:
        return False
    path = urlsplit(urljoin("/memory/a/b", _DOT.sub(".", url))).path
    return url.startswith("#") or path.startswith(_OWN_LINKS)


def _is_own_image(url: str) -> bool:
    path = urljoin("/", url)
    return _EMBEDDED_IMAGE.match(url) is not None or (
        not _SCHEME.match(url) and ".." not in unquote(url) and path.startswith(_OWN_IMAGES)
    )


def _image_size(url: str) -> tuple[str, str]:
    """Return the URL of an image without the size in its fragment, and the size as attributes.

    With its size, an image occupies its space before it is loaded.
    """
    size = _SIZE.search(url)
    if size is None:
        return url, ""
    return url[: size.start()], f' width="{int(size[1])}" height="{int(size[2])}"'


# -- the tokens ----------------------------------------------------------------------------------


def _without_title(tokens: list[Token], title: str) -> list[Token]:
    has_heading = tokens[0].type == "heading_open" if tokens else False
    if has_heading and title and _words(tokens[1]).strip() == title.strip():
        return tokens[3:]
    return tokens


def _words(token: Token) -> str:
    parts: list[str] = []
    for child in token.children or ():
        if child.type in {"text", "code_inline"}:
            parts.append(child.content)
        elif child.type == "wiki":
            parts.append(child.meta["text"] or child.meta["name"])
        elif child.type in {"formula", "highlight"}:
            parts.append(child.content)
        elif child.type == "tag":
            parts.append(f"#{child.content}")
        elif child.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
    return "".join(parts)


def _set_anchors(tokens: Sequence[Token]) -> tuple[PageHeading, ...]:
    """Set levels and anchors of headings; the page's title is level 1, and pages cannot choose anchors."""
    headings: list[PageHeading] = []
    anchor_counts: dict[str, int] = {}
    lower = int(any(token.tag == "h1" for token in tokens if token.type == "heading_open"))
    for number, token in enumerate(tokens):
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1]) + lower)}"
        if token.type != "heading_open":
            continue
        text = _words(tokens[number + 1])
        anchor = syntax.anchor(text)
        anchor_counts[anchor] = anchor_counts.get(anchor, 0) + 1
        if anchor_counts[anchor] > 1:
            anchor = f"{anchor}~{anchor_counts[anchor]}"
        token.attrSet("id", anchor)
        if len(headings) < _MAX_HEADINGS:
            headings.append(PageHeading(int(token.tag[1]), anchor, text))
    return tuple(headings)


class PageRenderer(render_limits.BoundedRenderer):
    """The renderer for wiki links, and for tokens whose content must be checked."""

    def wiki(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        meta, context = tokens[idx].meta, env["context"]
        if meta["file"]:
            return _file(meta["name"], meta["target"], meta["text"], context)
        if not meta["target"]:
            return f'<a href="{html.escape(meta["anchor"])}">{html.escape(meta["text"])}</a>'
        mention = (context.mentions or {}).get(meta["target"])
        text = meta["text"] or _link_text(meta, mention)
        kind = f'<span class="kind">{html.escape(_type_label(meta["type"]))}</span> ' if meta["type"] else ""
        return kind + _page_link(text, meta, mention, context)

    def highlight(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<mark>{html.escape(tokens[idx].content)}</mark>"

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        env["inside"] = True
        href, context = str(tokens[idx].attrs.get("href", "")), env["context"]
        target = _page_file(href, context.slug)
        if target is not None:
            mention = (context.mentions or {}).get(target)
            if mention is not None:
                return f'<a href="{html.escape(page_path(mention.slug, base=context.base))}">'
            return _missing_page_link(target, context)
        if _EMBEDDED_IMAGE.match(href):
            return "<a>"
        return f'<a href="{html.escape(href)}" {_EXTERNAL if _SCHEME.match(href) else ""}>'.replace(" >", ">")

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        src, alt = str(token.attrs.get("src", "")), html.escape(_words(token) or token.content)
        if _is_own_image(src):
            source, size = _image_size(src)
            return f'<img src="{html.escape(source)}" alt="{alt}"{size} loading="lazy">'
        target = attachments.target(src, env["context"].slug)
        if target is not None and target in (env["context"].files or {}):
            return _file(html.unescape(alt), target, "", env["context"])
        if src.lower().startswith(("http://", "https://")):
            host = html.escape(urlsplit(src).netloc)
            label = f"{alt}, image at {host}" if alt else f"Image at {host}"
            return f'<a class="external-image" href="{html.escape(src)}" {_EXTERNAL}>{label}</a>'
        return f'<span class="attachment">{alt or html.escape(unquote(src))}</span>'

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return '<div class="wide" tabindex="0" role="region" aria-label="Table"><table>'

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</table></div>"

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<pre tabindex="0"><code>{html.escape(tokens[idx].content)}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return self.fence(tokens, idx, options, env)

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<th{_alignment_class(tokens[idx])}>"

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<td{_alignment_class(tokens[idx])}>"

    def text(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return _autolink(tokens[idx].content, env)

    def task(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        done, box = ("true", "☑") if token.meta["done"] else ("false", "☐")
        if not env["context"].has_tasks:
            label = "done" if token.meta["done"] else "to do"
            return f'<span class="task" role="img" aria-label="{label}">{box}</span> '
        label = html.escape(token.content)
        return (
            f'<button class="task" form="tasks" name="task" value="{token.meta["line"]}" role="checkbox" '
            f'aria-checked="{done}" aria-label="{label}">{box}</button> '
        )

    def tag(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        name, context = tokens[idx].content, env["context"]
        if env.get("inside") or not context.account_id:
            return f"#{html.escape(name)}"
        return f'<a class="tag" href="{context.base}?tag={quote(name, safe="")}">#{html.escape(name)}</a>'

    def formula(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return formulas.to_mathml(tokens[idx].content, block=tokens[idx].block)

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        env["inside"] = False
        return "</a>"


def _autolink(text: str, env: Mapping[str, Any]) -> str:
    if "://" not in text or env.get("inside"):
        return html.escape(text)
    parts: list[str] = []
    at = 0
    for match in _ADDRESS.finditer(text):
        url = html.escape(match[0])
        parts += (html.escape(text[at : match.start()]), f'<a href="{url}" {_EXTERNAL}>{url}</a>')
        at = match.end()
    return "".join([*parts, html.escape(text[at:])])


def _alignment_class(token: Token) -> str:
    """Return the alignment as a class; the content security policy forbids style attributes."""
    match = re.search(r"center|right", str(token.attrs.get("style", "")))
    return f' class="{match[0]}"' if match is not None else ""


def _type_label(kind: str) -> str:
    return kind.replace("_", " ")


def _page_file(href: str, slug: str) -> str | None:
    """Return the slug for a link to a Markdown file, or None for other links."""
    path = unquote(href.partition("#")[0])
    if not path.lower().endswith(".md") or _SCHEME.match(href):
        return None
    return markdown.file_target(path, slugs.parent(slug))


def _link_text(meta: Mapping[str, str], mention: PageMention | None) -> str:
    """Return the text of a link without its own: the title of its page, and the heading to which it leads."""
    title = mention.title if mention is not None else meta["name"]
    return f"{title} > {meta['heading']}" if meta["heading"] else title


def _page_link(
    text: str, meta: Mapping[str, str], mention: PageMention | None, context: RenderContext
) -> str:
    if mention is not None:
        path = html.escape(page_path(mention.slug, base=context.base) + meta["anchor"])
        return f'<a class="wiki" href="{path}">{html.escape(text)}</a>'
    return f"{_missing_page_link(meta['target'], context)}{html.escape(text)}</a>"


def _file(name: str, target: str, size: str, context: RenderContext) -> str:
    """Return an embedded file: an image with `size` as its width, a player, or a link to a document."""
    file = (context.files or {}).get(target)
    name = html.escape(name)
    if file is None:
        why = "Files are not shown here" if context.files is None else "This file is not in the memory"
        return f'<span class="attachment" title="{why}">{name}</span>'
    name = name or html.escape(file.title)
    page, source = (html.escape(page_path(file.slug, action, context.base)) for action in ("", "file"))
    kind = file.media_type.partition("/")[0]
    if kind == "image":
        width = f' width="{int(size)}"' if size.isascii() and size.isdigit() and len(size) < 5 else ""
        return f'<a href="{page}"><img src="{source}" alt="{name}"{width} loading="lazy"></a>'
    if kind in {"audio", "video"}:
        return f'<{kind} controls preload="metadata" src="{source}" aria-label="{name}"></{kind}>'
    return f'<a class="attachment" href="{source}">{name}</a> <a class="note" href="{page}">text</a>'


def _missing_page_link(target: str, context: RenderContext) -> str:
    if not context.may_write:
        return '<a class="missing-page" title="no page yet">'
    path = f"{context.base}/~new?slug={quote(target, safe='')}"
    return f'<a class="missing-page" href="{path}" title="no page yet">'


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}, renderer_cls=PageRenderer)
    parser.enable(["table", "strikethrough"])
    parser.validateLink = is_allowed_url
    syntax.add_rules(parser)
    formulas.add_rules(parser)
    footnotes.add_rules(parser)
    render_limits.limit(parser)
    return parser


_PARSER = _parser()
