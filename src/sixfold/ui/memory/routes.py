"""The routes of the memory's pages. Slugs contain no `~`, so it marks the actions on a page."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sixfold.core.accounts import rights
from sixfold.ui.auth import PageAuth
from sixfold.ui.memory import formatting
from sixfold.ui.memory.browsing import BrowsePages
from sixfold.ui.memory.completion import EditorCompletion
from sixfold.ui.memory.editing import WritePages
from sixfold.ui.memory.files import MemoryFilePages
from sixfold.ui.memory.reading import ReadPages
from sixfold.ui.templating import PageTemplates
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices

_SMALL_FORM_BYTES = 65_536
# A line feed of a text area takes 6 bytes in a form's body.
_MAX_ENCODED_BYTES = 6


def build_api(services: WebServices, apis: Collection[str]) -> ApiGroup:
    pages, auth = PageTemplates(apis, formatting.FILTERS), PageAuth(services, api_keys=True)
    browsing, reading = BrowsePages(services, pages), ReadPages(services, pages)
    writing, files = WritePages(services, pages, auth), MemoryFilePages(services, pages, auth)
    page_bytes = services.settings.memory_page_bytes * _MAX_ENCODED_BYTES + _SMALL_FORM_BYTES
    page, signed_in = auth.page, auth.signed_in
    return ApiGroup(
        "memory-pages",
        pages.error_page,
        (
            RouteEntry("/memory", {"GET": page(browsing.show)}, access=rights.MEMORY_READ),
            RouteEntry("/memory/~results", {"GET": signed_in(browsing.results)}, access=rights.MEMORY_READ),
            RouteEntry(
                "/memory/~complete",
                {"GET": auth.script(EditorCompletion(services).show)},
                access=rights.MEMORY_READ,
            ),
            RouteEntry(
                "/memory/~new",
                {"GET": page(writing.new), "POST": signed_in(writing.create)},
                page_bytes,
                access=rights.MEMORY_WRITE,
            ),
            RouteEntry(
                "/memory/~preview",
                {"POST": signed_in(writing.preview)},
                page_bytes,
                access=rights.MEMORY_READ,
            ),
            RouteEntry(
                "/memory/~import",
                {"GET": page(files.form), "POST": signed_in(files.import_file)},
                services.settings.upload_body_bytes,
                access=rights.MEMORY_WRITE,
            ),
            RouteEntry("/memory/~export", {"GET": page(files.export)}, access=rights.MEMORY_READ),
            RouteEntry(
                "/memory/{slug:path}/~edit",
                {"GET": page(writing.edit), "POST": signed_in(writing.save)},
                page_bytes,
                access=rights.MEMORY_WRITE,
            ),
            RouteEntry(
                "/memory/{slug:path}/~file", {"GET": auth.script(files.show_file)}, access=rights.MEMORY_READ
            ),
            RouteEntry(
                "/memory/{slug:path}/~history", {"GET": page(reading.history)}, access=rights.MEMORY_READ
            ),
            RouteEntry(
                "/memory/{slug:path}/~move",
                {"GET": page(writing.show_move), "POST": signed_in(writing.move)},
                _SMALL_FORM_BYTES,
                access=rights.MEMORY_WRITE,
            ),
            *_actions(writing, auth),
            RouteEntry("/memory/{slug:path}", {"GET": page(reading.show)}, access=rights.MEMORY_READ),
        ),
        prefixes=("/memory/",),
    )


def _actions(writing: WritePages, auth: PageAuth) -> Iterator[RouteEntry]:
    """Yield the routes of the small forms that change a page."""
    for action, handler in (
        ("restore", writing.restore),
        ("delete", writing.delete),
        ("link", writing.review_link),
        ("task", writing.set_task),
    ):
        methods = {"POST": auth.signed_in(handler)}
        yield RouteEntry(
            f"/memory/{{slug:path}}/~{action}", methods, _SMALL_FORM_BYTES, access=rights.MEMORY_WRITE
        )
