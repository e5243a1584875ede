"""Drafts of pages, computed from requests or files without access to the database."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.memory import frontmatter, limits, markdown, slugs, timeline
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import LINK_TYPE, PAGE_TYPE, MemoryPage, TimelineEntry
from sixfold.core.memory.pages import PageDraft

OPERATIONS = ("append", "prepend", "replace_text", "replace_section", "set_fields", "rename")
FIELDS = ("title", "type", "tags", "collections")
_LINES = {"title": limits.TITLE_CHARS, "type": limits.TYPE_CHARS}
_MAX_LISTED = 20
_MAX_ALOUD = 200
_NOTE_REFERENCE = re.compile(r"\[\^([^\[\]\s]{1,100})\]")
_NOTE = re.compile(r"^\[\^([^\[\]\s]{1,100})\]:", re.MULTILINE)
_UNLIMITED = MemoryLimits(page_bytes=2**40)


class PageWrite(msgspec.Struct, frozen=True):
    """The content of a page as sent; omitted fields are None.

    An omitted field of a request stays unchanged. A file is `whole`, so its omitted fields are cleared.
    """

    slug: str
    body: str | None = None
    title: str | None = None
    type: str | None = None
    tags: tuple[str, ...] | None = None
    collections: tuple[str, ...] | None = None
    whole: bool = False
    path: str = ""


def compose(
    current: MemoryPage | None, request: PageWrite, limits: MemoryLimits, home: tuple[str, ...] = ()
) -> PageDraft:
    """Return the draft of `current` with the changes of `request`; raises `InvalidInput`, `TooLarge`.

    `home` contains the collections of a page that names no collections and had none before.
    """
    before = None if request.whole else current
    # The content that omitted fields keep: that of the page, or the defaults of a new one.
    earlier = PageDraft(request.slug, request.slug, "", "", PAGE_TYPE, collections=home)
    if before is not None:
        earlier = of(before)
    fields, head, body = _content(request, earlier, limits)
    stored_fields = fields if request.whole else frontmatter.NOTHING
    draft = PageDraft(
        slug=request.slug,
        title=_title(request, fields, body, earlier),
        head=_without_stored(head, stored_fields),
        body=body,
        type=_type(request, fields, earlier),
        tags=_names(request.tags, fields.tags, earlier.tags),
        collections=_names(request.collections, fields.collections, earlier.collections),
        path=request.path or (current.path if current is not None else "") or _own_file(request),
        links=_links(stored_fields),
        entries=_entries(stored_fields),
        old_slugs=tuple(filter(None, map(slugs.loosely, stored_fields.old_slugs or ()))),
    )
    return _as_stored(draft, current) if request.whole and current is not None else draft


def _content(
    request: PageWrite, earlier: PageDraft, allowed: MemoryLimits
) -> tuple[frontmatter.FrontMatter, str, str]:
    """Return the fields of the front matter, the text of the front matter, and the body of a request."""
    if request.body is None:
        return frontmatter.NOTHING, earlier.head, earlier.body
    parts = markdown.split(limits.body(request.body, allowed.page_bytes))
    fields = parts.fields
    if not parts.head and slugs.without_ids(request.path) != request.path:
        fields = frontmatter.notion_properties(parts.body)
    return fields, parts.head or earlier.head, parts.body


def _as_stored(draft: PageDraft, page: MemoryPage) -> PageDraft:
    """Return the draft of a file, with the page's own head and path if the page is exported as this file."""
    stored_page = replace(of(page), head=draft.head, path=page.path or f"{page.slug}.md")
    is_equal = (draft.head, draft.path) == (page.head, page.path)
    if is_equal or replace(draft, links=None, entries=(), old_slugs=()) != stored_page:
        return draft
    is_export = draft.head == frontmatter.update(page.head, exported_fields(page))
    return replace(draft, head=page.head, path=page.path) if is_export else draft


def exported_fields(page: MemoryPage) -> Mapping[str, frontmatter.Value]:
    """Return the front matter fields that the file of a page needs, so that an import restores the page."""
    values: dict[str, frontmatter.Value] = {
        "title": page.title,
        "type": page.type,
        "tags": page.tags,
        "collections": page.collections,
    }
    # A page that was written by a call needs all of its fields in the file.
    if not page.head and not page.path:
        return {name: value for name, value in values.items() if value}
    read = _as_file(page, page.slug, page.path)
    if read.title == default_title(page.slug, page.path):
        # Titles that earlier versions of the server read from the same file.
        heading = limits.loose_line(markdown.first_heading(page.body), limits.TITLE_CHARS)
        if page.title in {page.slug, heading}:
            del values["title"]
    return {name: value for name, value in values.items() if getattr(read, name) != value}


def _without_stored(head: str, fields: frontmatter.FrontMatter) -> str:
    """Return a file's front matter without the fields that exports add, which are stored separately."""
    new_keys = ("links", "timeline", "old_slugs")
    stored = [key for key in new_keys if getattr(fields, key) is not None]
    if not stored:
        return head
    head = frontmatter.update(head, dict.fromkeys(stored, ""))
    return head if frontmatter.inside(head).strip() else ""


def _links(fields: frontmatter.FrontMatter) -> tuple[tuple[str, str, str], ...] | None:
    if fields.links is None:
        return None
    unique: dict[tuple[str, str], tuple[str, str, str]] = {}
    for row in fields.links:
        target = slugs.loosely(row.get("to", ""))
        kind = limits.loose_link_type(row.get("type", "")) or LINK_TYPE
        if target is not None:
            unique[target, kind] = (target, kind, row.get("context", "")[: limits.CONTEXT_CHARS])
    return tuple(unique.values())


def _entries(fields: frontmatter.FrontMatter) -> tuple[TimelineEntry, ...]:
    entries: list[TimelineEntry] = []
    for row in fields.timeline or ():
        with contextlib.suppress(errors.BadRequest):
            entries.append(
                timeline.validate(
                    row.get("date", ""), row.get("summary", ""), row.get("detail", ""), row.get("source", "")
                )
            )
    return tuple(entries)


def _own_file(request: PageWrite) -> str:
    return f"{request.slug}.md" if request.whole else ""


def _title(request: PageWrite, fields: frontmatter.FrontMatter, body: str, earlier: PageDraft) -> str:
    if request.title is not None and request.title.strip():
        return limits.line("title", request.title, limits.TITLE_CHARS)
    source = fields.title or ""
    if not source and request.body is not None:
        # Note-taking programs show the name of a file, and its first heading may be that of a section.
        is_named = slugs.title_of_file(request.path, request.slug) != ""
        source = markdown.first_heading(body, 1 if is_named else markdown.MAX_LEVEL)
    title = limits.loose_line(source, limits.TITLE_CHARS)
    return title or (default_title(request.slug, request.path) if request.whole else earlier.title)


def title_at(page: MemoryPage, slug: str, path: str) -> str:
    """Return the title of a page at another slug and path; a title from its text stays."""
    if page.title == page.slug:
        return slug
    read = _as_file(page, page.slug, page.path).title
    return _as_file(page, slug, path).title if page.title == read else page.title


def _as_file(page: MemoryPage, slug: str, path: str) -> PageDraft:
    """Return the page that an import of the page's text as a file would create."""
    return compose(None, PageWrite(slug, page.head + page.body, whole=True, path=path), _UNLIMITED)


def path_at(page: MemoryPage, slug: str) -> str:
    """Return the file of a page at another slug; the name of the file stays if the last segment does."""
    if not page.path:
        return ""
    name = page.path.rpartition("/")[2]
    if slugs.name(slug) == slugs.name(page.slug) and slugs.title_of_file(name, slug):
        return "/".join(filter(None, (slugs.parent(slug), name)))
    return f"{slug}.md"


def default_title(slug: str, path: str) -> str:
    """Return the title of a page whose text does not state one: the name of its file, or its slug."""
    return limits.loose_line(slugs.title_of_file(path, slug), limits.TITLE_CHARS) or slug


def _type(request: PageWrite, fields: frontmatter.FrontMatter, earlier: PageDraft) -> str:
    if request.type is not None and request.type.strip():
        return limits.line("type", request.type, limits.TYPE_CHARS)
    kind = limits.loose_line(fields.type or "", limits.TYPE_CHARS)
    return kind or earlier.type


def _names(
    in_request: tuple[str, ...] | None, in_fields: tuple[str, ...] | None, before: tuple[str, ...]
) -> tuple[str, ...]:
    if in_request is not None:
        return in_request
    return limits.loose_names(in_fields) if in_fields is not None else before


def of(page: MemoryPage) -> PageDraft:
    return PageDraft(
        page.slug, page.title, page.head, page.body, page.type, page.tags, page.collections, page.path
    )


def differs(draft: PageDraft, page: MemoryPage) -> bool:
    """Return whether a draft changes the text or the fields of the page."""
    return replace(draft, links=None, entries=(), old_slugs=()) != of(page)


class PageEdit(msgspec.Struct, frozen=True):
    """A change of a page by an operation; each operation uses different fields."""

    operation: Literal["append", "prepend", "replace_text", "replace_section", "set_fields"]
    content: str = ""
    find: str = ""
    section: str = ""
    every: bool = False
    fields: Mapping[str, Any] | None = None


def apply(page: MemoryPage, edit: PageEdit, allowed: MemoryLimits) -> PageDraft:
    """Return the draft of an edit; raises `InvalidInput` if the edit does not fit the text.

    A text whose lines end with CRLF keeps these line ends, and clients may send either.
    """
    if 0 < page.body.count("\n") == page.body.count("\r\n"):
        texts = {name: getattr(edit, name).replace("\r\n", "\n") for name in ("content", "find")}
        draft = _applied(replace(page, body=page.body.replace("\r\n", "\n")), replace(edit, **texts), allowed)
        return replace(draft, body=limits.body(draft.body.replace("\n", "\r\n"), allowed.page_bytes))
    return _applied(page, edit, allowed)


def _applied(page: MemoryPage, edit: PageEdit, limits: MemoryLimits) -> PageDraft:
    match edit.operation:
        case "append":
            return _with_body(page, _join_lines(page.body, edit.content), limits)
        case "prepend":
            return _with_body(page, _join_lines(edit.content, page.body), limits)
        case "replace_text":
            return _with_body(page, _replace_text(page, edit, limits), limits)
        case "replace_section":
            return _with_body(page, _replace_section(page.body, edit.section, edit.content), limits)
        case "set_fields":
            return _with_fields(page, edit.fields or {})


def _with_body(page: MemoryPage, body: str, allowed: MemoryLimits) -> PageDraft:
    return replace(of(page), body=limits.body(body, allowed.page_bytes))


def with_task(page: MemoryPage, expected: str, number: int) -> PageDraft:
    """Return the draft with the task in line `number` of `expected`, the body that the user saw, toggled."""
    old = expected.split("\n")[number : number + 1]
    new = markdown.toggle_task(old[0]) if old else None
    if new is None:
        raise errors.BadRequest(f"Line {number} of the page is not a task: reload the page")
    lines = page.body.split("\n")
    numbers = [number] if lines[number : number + 1] == old else []
    numbers = numbers or [at for at, line in enumerate(lines) if line == old[0]]
    if len(numbers) != 1:
        raise errors.Conflict("The task was changed or moved in the meantime: reload the page")
    lines[numbers[0]] = new
    return replace(of(page), body="\n".join(lines))


def _join_lines(first: str, second: str) -> str:
    """Join two texts, each on separate lines."""
    return f"{first}\n{second}" if first and second and not first.endswith("\n") else first + second


def _replace_text(page: MemoryPage, edit: PageEdit, allowed: MemoryLimits) -> str:
    body = page.body
    if not edit.find:
        raise errors.InvalidInput.of("find", "find must not be empty: send the text to replace")
    count = body.count(edit.find)
    if count == 0:
        raise errors.InvalidInput.of(
            "find", "The text to find is not in the page: read the page again and send the exact text"
        )
    if count > 1 and not edit.every:
        raise errors.InvalidInput.of(
            "find",
            f"The text to find occurs {count} times: send more of the text around it, or all: true to "
            "replace each occurrence",
        )
    limits.check_size(_size(body) + count * (_size(edit.content) - _size(edit.find)), allowed.page_bytes)
    return body.replace(edit.find, edit.content)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _replace_section(body: str, section: str, content: str) -> str:
    """Replace the text under a heading, up to the next heading of the same or a higher level."""
    key = section.strip().lstrip("#").strip().casefold()
    if not key:
        raise errors.InvalidInput.of("section", "section must not be empty: send the heading of the section")
    headings = list(markdown.headings(body))
    number = _heading_index(headings, key)
    if number is None:
        titles = ", ".join(heading.text for heading in headings[:_MAX_LISTED]) or "none"
        raise errors.InvalidInput.of(
            "section", f"The page does not have the section {section.strip()!r}; its sections are {titles}"
        )
    heading = headings[number]
    end = next((later.start for later in headings[number + 1 :] if later.level <= heading.level), len(body))
    before, old, after = body[: heading.end], body[heading.end : end], body[end:]
    before = before if before.endswith("\n") else before + "\n"
    # Empty lines around headings are preserved.
    gap = old[len(old.rstrip("\n")) :] or ("\n" if after else "")
    lead = old[: len(old) - len(old.lstrip("\n"))] if old.strip("\n") and content[:1] != "\n" else ""
    notes = _notes_of_others(old, before + after, content)
    if notes:
        content = f"{content.rstrip()}\n\n{notes}"
    return before + lead + (content.rstrip("\n") + gap if gap else content) + after


def _notes_of_others(section: str, rest: str, content: str) -> str:
    """Return the footnotes at the end of a section to which the rest of the text refers.

    Note-taking programs put all footnotes at the end of a text, which is part of its last section. A footnote
    that the new content or the rest also contains is omitted.
    """
    if "[^" not in section:
        return ""
    used = set(_NOTE_REFERENCE.findall(rest)).difference(_NOTE.findall(content), _NOTE.findall(rest))
    notes: list[str] = []
    lines: list[str] = []
    for line in reversed(section.split("\n")):
        lines.append(line)
        if line.strip() and line[0] not in " \t":
            match = _NOTE.match(line)
            if match is None:
                break
            if match[1] in used:
                notes.append("\n".join(reversed(lines)).rstrip())
            lines = []
    return "\n".join(reversed(notes))


def _heading_index(headings: Sequence[markdown.HeadingBlock], key: str) -> int | None:
    """Return the index of a heading by its written or displayed text, among the first 200, or None."""
    titles = [heading.text.casefold() for heading in headings]
    if key in titles:
        return titles.index(key)
    aloud = [markdown.plain_text(heading.text).casefold() for heading in headings[:_MAX_ALOUD]]
    return aloud.index(key) if key in aloud else None


def _with_fields(page: MemoryPage, fields: Mapping[str, Any]) -> PageDraft:
    draft = of(page)
    if not fields:
        raise errors.InvalidInput.of("fields", f"fields must not be empty: send some of {', '.join(FIELDS)}")
    for name, value in fields.items():
        if name in _LINES:
            if not isinstance(value, str):
                raise errors.InvalidInput.of(name, f"{name} must be a string")
            draft = replace(draft, **{name: limits.line(name, value, _LINES[name])})
        elif name in {"tags", "collections"}:
            draft = replace(draft, **{name: texts(name, value)})
        else:
            raise errors.InvalidInput.of(
                "fields", f"fields must not contain {name!r}: use {', '.join(FIELDS)}"
            )
    return draft


def texts(name: str, value: Any) -> tuple[str, ...]:
    """Return tags or collections from a list, or from one string with commas."""
    if isinstance(value, str):
        return limits.names(name, [part for part in value.split(",") if part.strip()])
    if isinstance(value, list | tuple):
        parts = cast("list[object]", value)
        if all(isinstance(part, str) for part in parts):
            return limits.names(name, cast("list[str]", parts))
    raise errors.InvalidInput.of(name, f"{name} must be a list of strings")
