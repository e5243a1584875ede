"""The documentation files of this installation: docs/ in a checkout, or a copy in the wheel."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import sixfold
from sixfold.ui.docs import renderer
from sixfold.ui.docs.renderer import GuideHeading, GuideImage, GuidePage, RenderedGuide

_PACKAGE = Path(sixfold.__file__).parent
_PACKAGED = _PACKAGE / "guides"
FOLDER = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parents[1] / "docs"
# Titles of the folders, by which pages are grouped that are missing from docs/index.md.
SECTIONS: Mapping[str, str] = {
    "start": "Start",
    "howto": "How to",
    "reference": "Reference",
    "reference/http": "HTTP",
    "architecture": "Architecture",
}
_INDEX = "index.md"
_GROUP = re.compile(r"^```\{toctree\}\n:caption: (.+)\n((?:[^`].*\n|\n)*)```$", re.MULTILINE)
_IMAGE_TYPES = {".webp": "image/webp", ".jpg": "image/jpeg"}


def anchor(title: str) -> str:
    """Return the anchor of a group on the page of contents."""
    return "guides-" + title.lower().replace(" ", "-")


class DocsSnapshot:
    """A snapshot of the documentation; pages are rendered on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts = {
            f"{section}/{path.stem}": path.read_text("utf-8")
            for section in SECTIONS
            for path in sorted((folder / section).glob("*.md"))
        }
        groups = _groups(folder / _INDEX, self._texts)
        names = dict.fromkeys([*groups, *self._texts])
        self.guides = {
            name: GuidePage(name, *renderer.title_and_summary(self._texts[name])) for name in names
        }
        self._groups = {name: groups.get(name) or SECTIONS[posixpath.dirname(name)] for name in names}
        self._rendered: dict[str, RenderedGuide] = {}
        self._headings: dict[str, tuple[GuideHeading, ...]] = {}
        self._images: dict[str, GuideImage] = {}

    def groups(self) -> dict[str, list[GuidePage]]:
        """Return the pages by the title of their group, in the order of docs/index.md."""
        groups: dict[str, list[GuidePage]] = {}
        for name, guide in self.guides.items():
            groups.setdefault(self._groups[name], []).append(guide)
        return groups

    def group_of(self, name: str) -> str:
        """Return the title of a page's group."""
        return self._groups[name]

    def of(self, section: str) -> list[GuidePage]:
        return [guide for guide in self.guides.values() if posixpath.dirname(guide.name) == section]

    def headings(self) -> dict[str, tuple[GuideHeading, ...]]:
        """Return the headings of all pages, for the search."""
        if not self._headings:
            self._headings = {name: renderer.headings(text) for name, text in self._texts.items()}
        return self._headings

    def rendered(self, name: str) -> RenderedGuide:
        """Return a page as HTML; raises `KeyError` for an unknown name."""
        if name not in self._rendered:
            self._rendered[name] = renderer.render(
                self._texts[name], _SectionLinks(self, posixpath.dirname(name))
            )
        return self._rendered[name]

    def neighbors(self, name: str) -> tuple[GuidePage | None, GuidePage | None]:
        names = list(self.guides)
        at = names.index(name)
        before, after = names[at - 1 : at], names[at + 1 : at + 2]
        return (self.guides[before[0]] if before else None, self.guides[after[0]] if after else None)

    def bytes_of(self, name: str) -> tuple[bytes, str] | None:
        """Return the bytes and content type of an image, or None for an unknown name."""
        path = self._folder / "pictures" / name
        is_picture = path.suffix in _IMAGE_TYPES and path.parent.name == "pictures" and path.is_file()
        return (path.read_bytes(), _IMAGE_TYPES[path.suffix]) if is_picture else None

    def image(self, name: str) -> GuideImage | None:
        """Return an image's size and URL, which contains a content hash and may be cached forever."""
        from PIL import Image  # noqa: PLC0415 - few servers show a picture of the documentation

        if name not in self._images:
            content = self.bytes_of(name)
            if content is None:
                return None
            digest = hashlib.sha256(content[0]).hexdigest()[:12]
            with Image.open(self._folder / "pictures" / name) as image:
                self._images[name] = GuideImage(renderer.url(f"pictures/{name}?v={digest}"), *image.size)
        return self._images[name]

    def source(self, path: str) -> str | None:
        """Return the text of a file in docs/ or the package, by its path in the repository."""
        for prefix, folder in (("docs/", self._folder), ("src/sixfold/", _PACKAGE)):
            if path.startswith(prefix):
                return (folder / path.removeprefix(prefix)).read_text("utf-8")
        return None


def _groups(index: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the titles of the groups in docs/index.md by the names of their pages."""
    if not index.is_file():
        return {}
    return {
        name: title
        for title, lines in _GROUP.findall(index.read_text("utf-8"))
        for line in lines.splitlines()
        for name in texts
        if fnmatchcase(name, line) and posixpath.dirname(name) == posixpath.dirname(line)
    }


class _SectionLinks:
    """Resolves the relative links of the pages in one section."""

    def __init__(self, snapshot: DocsSnapshot, section: str) -> None:
        self._snapshot = snapshot
        self._section = section

    def _at(self, path: str) -> str:
        """Convert a path relative to the section to one relative to the root of the repository."""
        return posixpath.normpath(posixpath.join("docs", self._section, path))

    def linked(self, path: str) -> GuidePage | None:
        """Return the page that a link points to, if any."""
        return self._snapshot.guides.get(self._at(path).removeprefix("docs/").removesuffix(".md"))

    def image(self, path: str) -> GuideImage | None:
        """Return an image, if it exists."""
        return self._snapshot.image(self._at(path).removeprefix("docs/pictures/"))

    def source(self, path: str) -> str | None:
        """Return the text of a file, if it exists."""
        return self._snapshot.source(self._at(path))

    def matching(self, pattern: str) -> Sequence[GuidePage]:
        target = self._at(pattern).removeprefix("docs/")
        return [guide for name, guide in self._snapshot.guides.items() if fnmatchcase(name, target)]


class DocsRepository:
    """The documentation, read again when a file has changed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._stamp: tuple[int, ...] = ()
        self._snapshot: DocsSnapshot | None = None

    def snapshot(self) -> DocsSnapshot:
        files = [path for section in (*SECTIONS, "pictures") for path in (self._folder / section).glob("*.*")]
        files += [path for path in [self._folder / _INDEX] if path.is_file()]
        stamp = tuple(path.stat().st_mtime_ns for path in files)
        if self._snapshot is None or stamp != self._stamp:
            self._stamp, self._snapshot = stamp, DocsSnapshot(self._folder)
        return self._snapshot


@cache
def installed() -> DocsRepository:
    return DocsRepository()
