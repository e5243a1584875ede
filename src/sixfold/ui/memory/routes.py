"""The routes of the memory's pages. Slugs contain no `~`, so it marks the actions on a page.

The same pages show a folder of another account's memory below `/memory/~shared/`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sixfold.core.accounts import rights
from sixfold.ui.auth import PageAuth, SharedFolderAuth
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
_READ, _WRITE = rights.MEMORY_READ, rights.MEMORY_EDIT


def build_api(services: WebServices, apis: Collection[str]) -> ApiGroup:
    pages, auth = PageTemplates(apis, formatting.FILTERS), PageAuth(services, api_keys=True)
    files = MemoryFilePages(services, pages, auth)
    import_bytes = services.settings.upload_body_bytes
    import_methods = {"GET": auth.page(files.form), "POST": auth.signed_in(files.import_file)}
    return ApiGroup(
        "memory-pages",
        pages.error_page,
        (
            RouteEntry("/memory/~import", import_methods, import_bytes, access=_WRITE),
            RouteEntry("/memory/~export", {"GET": auth.page(files.export)}, access=_READ),
            *_pages(
                services, pages, SharedFolderAuth(services, api_keys=True), "/memory/~shared/{folder_id}"
            ),
            *_pages(services, pages, auth, "/memory"),
        ),
        prefixes=("/memory/",),
    )


def _pages(services: WebServices, pages: PageTemplates, auth: PageAuth, base: str) -> Iterator[RouteEntry]:
    """Yield the routes of a memory, or of a shared folder of another memory, below a path."""
    browsing, reading = BrowsePages(services, pages), ReadPages(services, pages)
    writing, files = WritePages(services, pages, auth), MemoryFilePages(services, pages, auth)
    page_bytes = services.settings.memory_page_bytes * _MAX_ENCODED_BYTES + _SMALL_FORM_BYTES
    page, signed_in, script = auth.page, auth.signed_in, auth.script
    yield RouteEntry(base, {"GET": page(browsing.show)}, access=_READ)
    yield RouteEntry(f"{base}/~results", {"GET": signed_in(browsing.results)}, access=_READ)
    yield RouteEntry(f"{base}/~complete", {"GET": script(EditorCompletion(services).show)}, access=_READ)
    new = {"GET": page(writing.new), "POST": signed_in(writing.create)}
    yield RouteEntry(f"{base}/~new", new, page_bytes, access=_WRITE)
    yield RouteEntry(f"{base}/~preview", {"POST": signed_in(writing.preview)}, page_bytes, access=_READ)
    slug = f"{base}/{{slug:path}}"
    edit = {"GET": page(writing.edit), "POST": signed_in(writing.save)}
    yield RouteEntry(f"{slug}/~edit", edit, page_bytes, access=_WRITE)
    yield RouteEntry(f"{slug}/~file", {"GET": script(files.show_file)}, access=_READ)
    yield RouteEntry(f"{slug}/~card", {"GET": script(reading.card)}, access=_READ)
    yield RouteEntry(f"{slug}/~history", {"GET": page(reading.history)}, access=_READ)
    move = {"GET": page(writing.show_move), "POST": signed_in(writing.move)}
    yield RouteEntry(f"{slug}/~move", move, _SMALL_FORM_BYTES, access=_WRITE)
    for action, handler in (
        ("restore", writing.restore),
        ("delete", writing.delete),
        ("link", writing.review_link),
        ("task", writing.set_task),
    ):
        yield RouteEntry(f"{slug}/~{action}", {"POST": signed_in(handler)}, _SMALL_FORM_BYTES, access=_WRITE)
    yield RouteEntry(slug, {"GET": page(reading.show)}, access=_READ)
