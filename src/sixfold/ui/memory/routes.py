"""The routes of the memory's pages. No slug has a `~`, so what can be done with a page stands behind one."""

from __future__ import annotations

from sixfold.ui.memory import showing
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
    pages, doors = Pages(services.settings.areas, showing.FILTERS), Doorkeeper(services)
    browsing, reading = Browsing(services, pages), Reading(services, pages)
    writing, files = Writing(services, pages, doors), Files(services, pages, doors)
    text = services.settings.memory_page_bytes * _ENCODED + _SMALL
    page, part = doors.page, doors.part
    return Face(
        "memory-pages",
        pages.dialect,
        (
            Route("/memory", {"GET": page(browsing.show)}),
            Route("/memory/~results", {"GET": part(browsing.results)}),
            Route("/memory/~new", {"GET": page(writing.new), "POST": part(writing.create)}, text),
            Route("/memory/~preview", {"POST": part(writing.preview)}, text),
            Route(
                "/memory/~import",
                {"GET": page(files.form), "POST": part(files.take_in)},
                services.settings.upload_body_bytes,
            ),
            Route("/memory/~export", {"GET": page(files.take_out)}),
            Route("/memory/{slug:path}/~edit", {"GET": page(writing.edit), "POST": part(writing.save)}, text),
            Route("/memory/{slug:path}/~history", {"GET": page(reading.history)}),
            Route("/memory/{slug:path}/~restore", {"POST": part(writing.restore)}, _SMALL),
            Route(
                "/memory/{slug:path}/~move",
                {"GET": page(writing.place), "POST": part(writing.move)},
                _SMALL,
            ),
            Route("/memory/{slug:path}/~delete", {"POST": part(writing.delete)}, _SMALL),
            Route("/memory/{slug:path}/~link", {"POST": part(writing.judge)}, _SMALL),
            Route("/memory/{slug:path}", {"GET": page(reading.show)}),
        ),
        prefixes=("/memory/",),
    )
