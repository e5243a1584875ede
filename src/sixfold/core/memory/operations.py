"""The table of operations on the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sixfold import errors
from sixfold.core import pagination
from sixfold.core.memory import limits, page_edits, slugs
from sixfold.core.memory import serializers as memory_serializers
from sixfold.core.memory.commands import SavedPage, TagChange, WriteTerms
from sixfold.core.memory.import_export import document_fields
from sixfold.core.memory.links import LinkPath
from sixfold.core.memory.models import Caller, Link, TimelineEntry
from sixfold.core.memory.operation_schema import Arguments, Operation, OperationField
from sixfold.core.memory.page_edits import PageEdit, PageWrite
from sixfold.core.memory.pages import PageFilter
from sixfold.core.memory.ports import MODES, Mode, SearchRequest
from sixfold.core.memory.search import context
from sixfold.core.memory.service import MemoryService

Plain = Mapping[str, Any]
# The default limit on the characters of a text in one response.
BUDGET = 20_000
MAX_BUDGET = 200_000
_FETCH_CHARS = 100_000
_AT_A_GLANCE = 10

SLUG = OperationField(
    "slug",
    "string",
    "The page's slug, such as people/ann: letters and digits of any script, - _ . and / between folders",
    required=True,
    max_chars=limits.LONG_SLUG,
)
IF_VERSION = OperationField(
    "if_version",
    "integer",
    "Change the page only if this is its current version, as returned by read; otherwise, the call fails",
    minimum=1,
)
LIMIT = OperationField(
    "limit", "integer", "Maximum number of results", default=50, minimum=1, maximum=limits.MAX_PAGE_SIZE
)
CURSOR = OperationField(
    "cursor", "string", "next_cursor of the previous response, for the next page", max_chars=500
)
AS_OF = OperationField("as_of", "string", "State at this RFC 3339 time or the end of this date", max_chars=40)
TAGS = OperationField("tags", "strings", 'Tags, such as ["hiring", "2026"]')
COLLECTIONS = OperationField(
    "collections",
    "strings",
    "Collections, to which keys can be limited; default: the collection of a key limited to one",
)

SEARCH = (
    OperationField(
        "query", "string", "A question or words, in any language", required=True, max_chars=10_000
    ),
    OperationField("limit", "integer", "Maximum number of results", default=10, minimum=1, maximum=100),
    OperationField("offset", "integer", "Number of results to skip", default=0, minimum=0, maximum=10_000),
    OperationField("types", "strings", "Only pages with one of these types"),
    OperationField("tags", "strings", "Only pages with one of these tags"),
    OperationField("collections", "strings", "Only pages in one of these collections"),
    OperationField("since", "string", "Only pages changed since this RFC 3339 time or date", max_chars=40),
    OperationField("until", "string", "Only pages changed until this RFC 3339 time or date", max_chars=40),
    OperationField("mode", "string", "Search mode; auto suits most queries", default="auto", choices=MODES),
    OperationField(
        "snippet_chars", "integer", "Maximum length of a snippet", default=300, minimum=0, maximum=2_000
    ),
    OperationField("explain", "boolean", "Include the parts of each score", default=False),
)
READ = (
    SLUG,
    AS_OF,
    OperationField("offset", "integer", "Offset in the text, in characters", default=0, minimum=0),
    OperationField(
        "max_chars", "integer", "Maximum number of characters", default=BUDGET, minimum=1, maximum=MAX_BUDGET
    ),
)
WRITE = (
    SLUG,
    OperationField(
        "title",
        "string",
        "Default: the title in the front matter, else the first heading",
        max_chars=limits.TITLE_CHARS,
    ),
    OperationField(
        "body",
        "string",
        "Markdown text. [[slug]] is a link; - works_at [[companies/acme]] or [[works_at::companies/acme]] is "
        "a link with a type. Front matter can set title, type, tags and collections",
        required=True,
    ),
    OperationField(
        "type", "string", "Such as person, company, decision; default: note", max_chars=limits.TYPE_CHARS
    ),
    TAGS,
    COLLECTIONS,
    OperationField("overwrite", "boolean", "Replace an existing page", default=False),
    IF_VERSION,
)
EDIT = (
    SLUG,
    OperationField("operation", "string", "Edit operation", required=True, choices=page_edits.OPERATIONS),
    OperationField("content", "string", "append, prepend, replace_section: the new text"),
    OperationField(
        "find", "string", "replace_text: the exact text to replace; it must occur once unless `all` is true"
    ),
    OperationField("replace", "string", "replace_text: the new text"),
    OperationField("all", "boolean", "replace_text: replace all occurrences", default=False),
    OperationField("section", "string", "replace_section: the heading of the section", max_chars=500),
    OperationField("fields", "object", "set_fields: any of title, type, tags, collections"),
    OperationField(
        "to",
        "string",
        "rename: the new slug; links are updated, and the old slug redirects to it",
        max_chars=limits.LONG_SLUG,
    ),
    IF_VERSION,
)
LIST = (
    OperationField("prefix", "string", "Only slugs with this prefix: people/", max_chars=limits.LONG_SLUG),
    OperationField("tag", "string", "Only pages with this tag", max_chars=limits.TAG_CHARS),
    OperationField("type", "string", "Only pages of this type", max_chars=limits.TYPE_CHARS),
    OperationField("collection", "string", "Only pages in this collection", max_chars=limits.TAG_CHARS),
    OperationField("updated_after", "string", "Only pages changed after this time or date", max_chars=40),
    LIMIT,
    CURSOR,
)
LINK = (
    SLUG,
    OperationField(
        "to", "string", "Slug of the linked page; omit it to list the links", max_chars=limits.LONG_SLUG
    ),
    OperationField(
        "type",
        "string",
        "Such as works_at, founded, depends_on; default: links_to",
        max_chars=limits.TYPE_CHARS,
    ),
    OperationField("context", "string", "Reason for the link, in a sentence", max_chars=limits.CONTEXT_CHARS),
    OperationField(
        "action",
        "string",
        "Add or remove the link, or confirm or dismiss one that was inferred from a sentence",
        default="add",
        choices=("add", "remove", "confirm", "dismiss"),
    ),
    IF_VERSION,
)
TAG = (
    SLUG,
    OperationField("tags", "strings", "Tags to add; omit it and `remove` to list the tags"),
    OperationField("remove", "strings", "Tags to remove"),
    IF_VERSION,
)
TIMELINE = (
    SLUG,
    OperationField(
        "date", "string", "Date of a new entry: 2026-11-20, 2026-11, 2026, or a time", max_chars=40
    ),
    OperationField("summary", "string", "Summary of the event, on one line", max_chars=limits.SUMMARY_CHARS),
    OperationField("detail", "string", "Details of the event", max_chars=limits.DETAIL_CHARS),
    OperationField("source", "string", "Source of the information", max_chars=limits.SUMMARY_CHARS),
    AS_OF,
    LIMIT,
    CURSOR,
    IF_VERSION,
)
HISTORY = (
    SLUG,
    OperationField("version", "integer", "Return the text of this version", minimum=1),
    OperationField("from", "integer", "First version to compare", minimum=1),
    OperationField("to", "integer", "Second version to compare", minimum=1),
    LIMIT,
    CURSOR,
)
TRAVERSE = (
    SLUG,
    OperationField("depth", "integer", "Maximum number of steps", default=1, minimum=1, maximum=limits.DEPTH),
    OperationField("type", "string", "Only links of this type", max_chars=limits.TYPE_CHARS),
    OperationField("direction", "string", "Link direction", default="both", choices=("out", "in", "both")),
)
DELETE = (SLUG, IF_VERSION)
RESTORE = (
    SLUG,
    OperationField(
        "version",
        "integer",
        "The version to restore, from history; default: the last version of a deleted page",
        minimum=1,
    ),
    IF_VERSION,
)
FETCH = (OperationField("id", "string", "The id or slug of a search result", required=True, max_chars=800),)
INSPECT = (LIMIT,)

_DESCRIPTIONS: Mapping[str, tuple[str, tuple[OperationField, ...], bool]] = {
    "search": (
        "Find pages by a question or by words. Results are sorted by relevance, each with its best passage.",
        SEARCH,
        False,
    ),
    "read": (
        "Return a page: its text, tags, links in both directions, timeline and version (for edits).",
        READ,
        False,
    ),
    "write": (
        "Create a page, or replace it with overwrite or if_version. To add to a page, use edit.",
        WRITE,
        True,
    ),
    "edit": (
        "Change part of a page: append, prepend, replace text or a section, set fields, or rename.",
        EDIT,
        True,
    ),
    "list": ("List pages by slug, filtered by folder, tag, type, collection or time of change.", LIST, False),
    "tag": ("List, add or remove the tags of a page.", TAG, True),
    "link": ("List, add or remove the links of a page, or confirm or dismiss an inferred link.", LINK, True),
    "timeline": ("List the dated events of a page, or add an event.", TIMELINE, True),
    "traverse": ("List the pages that are connected to a page by up to five links.", TRAVERSE, False),
    "history": ("List the versions of a page, return a version, or compare two versions.", HISTORY, False),
    "delete": ("Delete a page. To undo this, use restore.", DELETE, True),
    "restore": ("Restore an older version of a page, or a deleted page.", RESTORE, True),
    "inspect": ("Summarize the memory: counts, types, tags, collections, changes, orphans.", INSPECT, False),
    "import_document": (
        "Import a document as pages with page marks like [p. 12]. A new version replaces the old pages.",
        document_fields.IMPORT_DOCUMENT,
        True,
    ),
    "fetch": ("Return the full text of a search result by its id.", FETCH, False),
}


def operations(memory: MemoryService) -> Mapping[str, Operation]:
    """Return all operations by name, in the order in which agents see them."""
    tools = _MemoryOperations(memory)
    table = {
        name: Operation(name, description, fields, writes, getattr(tools, f"do_{name}"))
        for name, (description, fields, writes) in _DESCRIPTIONS.items()
    }
    return {"context": context.operation(memory), **table}


def terms(arguments: Arguments) -> WriteTerms:
    return WriteTerms(if_version=arguments.get("if_version"), overwrite=bool(arguments.get("overwrite")))


def earliest(arguments: Arguments, name: str) -> int | None:
    """Return the start of a time argument in epoch µs, or None if it is omitted."""
    text = arguments.get(name)
    return None if text is None else limits.earliest(name, text)


def latest(arguments: Arguments, name: str = "as_of") -> int | None:
    """Return the end of a time argument in epoch µs, or None if it is omitted."""
    text = arguments.get(name)
    return None if text is None else limits.latest(name, text)


def parse_search(arguments: Arguments) -> SearchRequest:
    return SearchRequest(
        query=arguments["query"],
        limit=arguments["limit"],
        offset=arguments["offset"],
        types=tuple(arguments["types"] or ()),
        tags=tuple(arguments["tags"] or ()),
        collections=tuple(arguments["collections"] or ()),
        since=earliest(arguments, "since"),
        until=latest(arguments, "until"),
        mode=cast("Mode", arguments["mode"]),
        snippet_chars=arguments["snippet_chars"],
        explain=arguments["explain"],
    )


def parse_page(arguments: Arguments) -> PageWrite:
    return PageWrite(
        slug=slugs.normalize(arguments["slug"]),
        body=arguments["body"],
        title=arguments["title"],
        type=arguments["type"],
        tags=None if arguments["tags"] is None else page_edits.texts("tags", arguments["tags"]),
        collections=None
        if arguments["collections"] is None
        else page_edits.texts("collections", arguments["collections"]),
    )


def parse_filter(arguments: Arguments) -> PageFilter:
    after = latest(arguments, "updated_after")
    result = PageFilter(
        tag=arguments["tag"] or "",
        type=arguments["type"] or "",
        collection=arguments["collection"] or "",
        prefix=slugs.beginning(arguments["prefix"] or ""),
    )
    return (
        result
        if after is None
        else PageFilter(result.tag, result.type, result.collection, result.prefix, after)
    )


def parse_edit(arguments: Arguments) -> PageEdit:
    """Return the edit that the arguments describe; raises `InvalidInput` if an argument is missing."""
    operation = arguments["operation"]
    required_arguments = {
        "append": ("content",),
        "prepend": ("content",),
        "replace_text": ("find", "replace"),
        "replace_section": ("section", "content"),
        "set_fields": ("fields",),
    }[operation]
    problems = [
        errors.Problem(name, f"{operation} requires {name}", "missing")
        for name in required_arguments
        if arguments.get(name) is None
    ]
    if problems:
        raise errors.InvalidInput(problems)
    return PageEdit(
        operation=operation,
        content=arguments["replace"] if operation == "replace_text" else arguments.get("content") or "",
        find=arguments.get("find") or "",
        section=arguments.get("section") or "",
        every=bool(arguments.get("all")),
        fields=arguments.get("fields"),
    )


class _MemoryOperations:
    def __init__(self, memory: MemoryService) -> None:
        self._memory = memory
        self._base = memory.base_url

    async def do_search(self, caller: Caller, arguments: Arguments) -> Plain:
        return memory_serializers.answer(
            await self._memory.search(caller, parse_search(arguments)), self._base
        )

    async def do_read(self, caller: Caller, arguments: Arguments) -> Plain:
        view = await self._memory.read(caller, arguments["slug"], latest(arguments))
        return {
            **memory_serializers.page(view, self._base),
            **cut(view.page.body, arguments["offset"], arguments["max_chars"]),
        }

    async def do_write(self, caller: Caller, arguments: Arguments) -> Plain:
        return self._saved(caller, await self._memory.write(caller, parse_page(arguments), terms(arguments)))

    async def do_edit(self, caller: Caller, arguments: Arguments) -> Plain:
        slug, on = arguments["slug"], terms(arguments)
        if arguments["operation"] == "rename":
            if arguments["to"] is None:
                raise errors.InvalidInput(
                    [errors.Problem("to", "to is required for rename: send the new slug", "missing")]
                )
            to = slugs.normalize(arguments["to"], "to")
            return self._saved(caller, await self._memory.rename(caller, slug, to, on))
        return self._saved(caller, await self._memory.edit(caller, slug, parse_edit(arguments), on))

    async def do_list(self, caller: Caller, arguments: Arguments) -> Plain:
        result = await self._memory.list(
            caller, parse_filter(arguments), arguments["limit"], arguments["cursor"] or ""
        )
        rows = [memory_serializers.row(row, self._base) for row in result.rows]
        return {"pages": rows, "next_cursor": result.next_cursor}

    async def do_tag(self, caller: Caller, arguments: Arguments) -> Plain:
        slug, change = arguments["slug"], TagChange(arguments["tags"] or (), arguments["remove"] or ())
        if change.add or change.remove:
            page = (await self._memory.tag(caller, slug, change, terms(arguments))).page
        else:
            page = (await self._memory.read(caller, slug)).page
        return {"slug": page.slug, "tags": list(page.tags), "version": page.version}

    async def do_link(self, caller: Caller, arguments: Arguments) -> Plain:
        slug, action = arguments["slug"], arguments["action"]
        if arguments["to"] is not None:
            new_link = Link(slug, arguments["to"], arguments["type"] or "", arguments["context"] or "")
            await self._memory.relink(caller, slug, (action, new_link), terms(arguments))
        view = await self._memory.read(caller, slug)
        return {
            "slug": view.page.slug,
            "links": [memory_serializers.link(link) for link in view.links],
            "backlinks": [memory_serializers.backlink(link) for link in view.backlinks],
        }

    async def do_timeline(self, caller: Caller, arguments: Arguments) -> Plain:
        slug = arguments["slug"]
        if arguments["date"] is not None or arguments["summary"] is not None:
            entry = TimelineEntry(
                arguments["date"] or "",
                arguments["summary"] or "",
                arguments["detail"] or "",
                arguments["source"] or "",
            )
            await self._memory.note(caller, slug, entry, terms(arguments))
        result = await self._memory.timeline(
            caller, slug, arguments["limit"], arguments["cursor"], latest(arguments)
        )
        return {
            "timeline": [memory_serializers.entry(entry) for entry in result.entries],
            "next_cursor": result.next_cursor,
        }

    async def do_traverse(self, caller: Caller, arguments: Arguments) -> Plain:
        route = LinkPath(arguments["depth"], arguments["type"] or "", arguments["direction"])
        return memory_serializers.walk(await self._memory.traverse(caller, arguments["slug"], route))

    async def do_history(self, caller: Caller, arguments: Arguments) -> Plain:
        slug = arguments["slug"]
        if arguments["version"] is not None:
            page = await self._memory.version(caller, slug, arguments["version"])
            return {**memory_serializers.brief(page, self._base), **cut(page.body, 0, BUDGET)}
        if arguments["from"] is not None and arguments["to"] is not None:
            change = await self._memory.diff(caller, slug, arguments["from"], arguments["to"])
            return memory_serializers.change(change, BUDGET)
        page, result = await self._memory.history(
            caller, slug, arguments["limit"], before(arguments["cursor"])
        )
        rows = [memory_serializers.version(row) for row in result.rows]
        return {"slug": page.slug, "versions": rows, "next_cursor": result.next_cursor}

    async def do_delete(self, caller: Caller, arguments: Arguments) -> Plain:
        page = await self._memory.delete(caller, arguments["slug"], terms(arguments))
        return {"slug": page.slug, "deleted": True, "version": page.version}

    async def do_restore(self, caller: Caller, arguments: Arguments) -> Plain:
        slug, version = arguments["slug"], arguments["version"]
        return self._saved(caller, await self._memory.restore(caller, slug, version, terms(arguments)))

    async def do_inspect(self, caller: Caller, arguments: Arguments) -> Plain:
        limit = arguments["limit"]
        overview = await self._memory.overview(caller, min(limit, _AT_A_GLANCE))
        counts: dict[str, Any] = {}
        for noun in ("types", "tags", "collections"):
            result = await self._memory.count_by(caller, noun, limit)
            counts[noun] = [memory_serializers.count(row) for row in result.rows]
        remaining = (await self._memory.usage(caller)).left
        return {
            "pages": overview.pages,
            **counts,
            "recent": [memory_serializers.glance(row) for row in overview.recent],
            "orphans": [memory_serializers.glance(row) for row in overview.orphans],
            "memory_credits_left": remaining if self._memory.limits.plans_enforced else None,
        }

    async def do_import_document(self, caller: Caller, arguments: Arguments) -> Plain:
        options, name = document_fields.parse(arguments), arguments["name"]
        url, content = arguments["url"], arguments["content"]
        if (url is None) == (content is None):
            raise errors.InvalidInput(
                [errors.Problem("url", "send either url or content, which contains the document", "missing")]
            )
        report = await self._memory.import_sent(caller, name, options, url=url or "", content=content or "")
        return memory_serializers.imported_documents(report)

    async def do_fetch(self, caller: Caller, arguments: Arguments) -> Plain:
        page = await self._memory.fetch(caller, arguments["id"])
        summary = memory_serializers.brief(page, self._base)
        text = page.body[:_FETCH_CHARS]
        metadata: dict[str, Any] = {
            name: summary[name] for name in ("slug", "type", "tags", "collections", "version", "updated_at")
        }
        if len(text) < len(page.body):
            metadata["next_offset"] = len(text)
        return {"id": page.id, "title": page.title, "text": text, "url": summary["url"], "metadata": metadata}

    def _saved(self, caller: Caller, saved: SavedPage) -> Plain:
        return {
            **memory_serializers.brief(caller.shown(saved.page), self._base),
            "created": saved.created,
            "changed": saved.changed,
        }


def cut(text: str, offset: int, max_chars: int) -> Plain:
    """Return a part of a text and, if more follows, the offset of the rest."""
    part = text[offset : offset + max_chars]
    end = offset + len(part)
    if end >= len(text):
        return {"body": part, "truncated": False}
    return {"body": part, "truncated": True, "next_offset": end, "total_chars": len(text)}


def before(cursor: str | None) -> int:
    """Return the version of a history cursor; raises `InvalidCursor`."""
    if not cursor:
        return 2**62
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
        raise pagination.InvalidCursor
    return int(cursor)
