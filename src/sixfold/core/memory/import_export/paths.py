"""Conversions between slugs and file paths, including an outliner's names that contain folders.

`outliner` is the folder of an outliner's files: "" at the top level, for example "graph/" in a subfolder, or
None if the files are not from an outliner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from sixfold.core.memory import slugs

ENDINGS = (".md", ".markdown")
# Maximum characters of a path.
MAX_CHARS = 1_000
# This file identifies the folder of an outliner.
SETTINGS = "logseq/config.edn"
_SETTINGS = re.compile(rf"([^/]+/)?{re.escape(SETTINGS)}")
_NOT_PAGES = re.compile(r"__MACOSX/|([^/]+/)?logseq/(bak|version-files)/|(.*/)?\._[^/]*$", re.DOTALL)
_FILE_OF_DAY = re.compile(r"journals/(\d{4})_(\d{2})_(\d{2})")
_DAY = re.compile(r"journals/(\d{4})-(\d{2})-(\d{2})")


def outliner(paths: Iterable[str]) -> str | None:
    """Return the folder of an outliner's files among some paths, or None."""
    matches = (match for path in paths if (match := _SETTINGS.fullmatch(path)))
    match = next(matches, None)
    return match[1] or "" if match else None


def slug(path: str, outliner: str | None = None) -> str | None:
    """Return the slug of a file, or None if its path is invalid or too long."""
    if len(path) > MAX_CHARS:
        return None
    name = next((path[: -len(end)] for end in ENDINGS if path.lower().endswith(end)), path)
    if outliner is not None and name.startswith(outliner):
        name = outliner + _outliner_path(name.removeprefix(outliner))
    return slugs.loosely(slugs.without_ids(name))


def _outliner_path(name: str) -> str:
    """Return the path for the name of an outliner's file.

    Such names are `work___acme`, `work%2Facme` and `journals/2026_11_20`.
    """
    if name.startswith("pages/"):
        return unquote(name.removeprefix("pages/")).replace("___", "/")
    return _FILE_OF_DAY.sub(r"journals/\1-\2-\3", name).replace("___", "/")


def file(slug: str, outliner: str | None = None) -> str:
    if outliner is None or not slug.startswith(outliner):
        return f"{slug}.md"
    name = slug.removeprefix(outliner)
    day = _DAY.fullmatch(name)
    plain = f"journals/{'_'.join(day.groups())}" if day else f"pages/{name.replace('/', '___')}"
    return f"{outliner}{plain}.md"


def plain(path: str) -> str:
    """Return a path without its segments `.`, such as those of `tar -cf pages.tar .`."""
    if "./" not in path:
        return path
    return "/".join(part for part in path.split("/") if part != ".")


def is_markdown(path: str) -> bool:
    """Return whether the name of a file ends like that of a Markdown file."""
    return path.lower().endswith(ENDINGS)


def is_visible(path: str) -> bool:
    """Return whether a path is outside hidden and application folders."""
    if _NOT_PAGES.match(path):
        return False
    return not any(part.startswith(".") and part.strip(".") for part in path.split("/")[:-1])
