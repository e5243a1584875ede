"""The routes of the memory's pages. No slug has a `~`, so what can be done with a page stands behind one."""

from __future__ import annotations

from sixfold.core.accounts import rights
from sixfold.ui.memory import formatting
from sixfold.ui.memory.browsing import Browsing
from sixfold.ui.memory.files import Files
from sixfold.ui.memory.reading import Reading
from sixfold.ui.memory.visitors import Doorkeeper
from sixfold.ui.memory.writing import Writing
from sixfold.ui.pages import Pages
from sixfold.web.routing import Face, Route
from sixfold.web.services import Services

_SMALL = 65_536
_ENCODED = 6  # bytes that a line feed of a text area takes in a form's body


def face(services: Services) -> Face:
    """Everything below `/memory`."""
    pages, doors = Pages(services.settings.areas, formatting.FILTERS), Doorkeeper(services)
    browsing, reading = Browsing(services, pages), Reading(services, pages)
    writing, files = Writing(services, pages, doors), Files(services, pages, doors)
    text = services.settings.memory_page_bytes * _ENCODED + _SMALL
    page, part = doors.page, doors.part
    return Face(
        "memory-pages",
        pages.dialect,
        (
            Route("/memory", {"GET": page(browsing.show)}, access=rights.MEMORY_READ),
            Route("/memory/~results", {"GET": part(browsing.results)}, access=rights.MEMORY_READ),
            Route(
                "/memory/~new",
                {"GET": page(writing.new), "POST": part(writing.create)},
                text,
                access=rights.MEMORY_WRITE,
            ),
            Route("/memory/~preview", {"POST": part(writing.preview)}, text, access=rights.MEMORY_READ),
            Route(
                "/memory/~import",
                {"GET": page(files.form), "POST": part(files.take_in)},
                services.settings.upload_body_bytes,
                access=rights.MEMORY_WRITE,
            ),
            Route("/memory/~export", {"GET": page(files.take_out)}, access=rights.MEMORY_READ),
            Route(
                "/memory/{slug:path}/~edit",
                {"GET": page(writing.edit), "POST": part(writing.save)},
                text,
                access=rights.MEMORY_WRITE,
            ),
            Route("/memory/{slug:path}/~history", {"GET": page(reading.history)}, access=rights.MEMORY_READ),
            Route(
                "/memory/{slug:path}/~restore",
                {"POST": part(writing.restore)},
                _SMALL,
                access=rights.MEMORY_WRITE,
            ),
            Route(
                "/memory/{slug:path}/~move",
                {"GET": page(writing.place), "POST": part(writing.move)},
                _SMALL,
                access=rights.MEMORY_WRITE,
            ),
            Route(
                "/memory/{slug:path}/~delete",
                {"POST": part(writing.delete)},
                _SMALL,
                access=rights.MEMORY_WRITE,
            ),
            Route(
                "/memory/{slug:path}/~link", {"POST": part(writing.judge)}, _SMALL, access=rights.MEMORY_WRITE
            ),
            Route("/memory/{slug:path}", {"GET": page(reading.show)}, access=rights.MEMORY_READ),
        ),
        prefixes=("/memory/",),
    )
