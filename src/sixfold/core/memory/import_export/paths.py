"""Which page a file is, and where a page lies: an outliner spells folders in the names of its files.

`outliner` is where the folders of one lie: "" at the top, "graph/" in a folder that was taken whole, None
where there are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from sixfold.core.memory import slugs

ENDINGS = (".md", ".markdown")
MAX_CHARS = 1_000  # of a path
SETTINGS = "logseq/config.edn"  # tells that a folder is an outliner's
_SETTINGS = re.compile(rf"([^/]+/)?{re.escape(SETTINGS)}")
_FILE_OF_DAY = re.compile(r"journals/(\d{4})_(\d{2})_(\d{2})")
_DAY = re.compile(r"journals/(\d{4})-(\d{2})-(\d{2})")


def outliner(paths: Iterable[str]) -> str | None:
    """Where among some files the folders of an outliner lie."""
    found = (match for path in paths if (match := _SETTINGS.fullmatch(path)))
    match = next(found, None)
    return match[1] or "" if match else None


def slug(path: str, outliner: str | None = None) -> str | None:
    """The slug of a file; None where its path spells none, or is too long to be a page's."""
    if len(path) > MAX_CHARS:
        return None
    name = next((path[: -len(end)] for end in ENDINGS if path.lower().endswith(end)), path)
    if outliner is not None and name.startswith(outliner):
        name = outliner + _outlined(name.removeprefix(outliner))
    return slugs.loosely(name)


def _outlined(name: str) -> str:
    """`work___acme`, `work%2Facme` of older ones, `journals/2026_11_20`."""
    if name.startswith("pages/"):
        return unquote(name.removeprefix("pages/")).replace("___", "/")
    return _FILE_OF_DAY.sub(r"journals/\1-\2-\3", name).replace("___", "/")


def file(slug: str, outliner: str | None = None) -> str:
    """Where the page of a slug lies of which nothing else is known."""
    if outliner is None or not slug.startswith(outliner):
        return f"{slug}.md"
    name = slug.removeprefix(outliner)
    day = _DAY.fullmatch(name)
    plain = f"journals/{'_'.join(day.groups())}" if day else f"pages/{name.replace('/', '___')}"
    return f"{outliner}{plain}.md"
