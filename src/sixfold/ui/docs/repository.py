"""The documentation files of this installation: docs/ in a checkout, or a copy in the wheel."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from PIL import Image

import sixfold
from sixfold.ui.docs import renderer
from sixfold.ui.docs.renderer import GuidePage, GuidePicture, RenderedGuide

_PACKAGE = Path(sixfold.__file__).parent
_CARRIED = _PACKAGE / "guides"
FOLDER = _CARRIED if _CARRIED.is_dir() else _PACKAGE.parents[1] / "docs"
SECTIONS: Mapping[str, str] = {
    "start": "Start",
    "howto": "How to",
    "reference": "Reference",
    "reference/http": "HTTP",
    "architecture": "Architecture",
}
_PICTURES = {".webp": "image/webp", ".jpg": "image/jpeg"}


class Edition:
    """A snapshot of the documentation; pages are rendered on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts = {
            f"{section}/{path.stem}": path.read_text("utf-8")
            for section in SECTIONS
            for path in sorted((folder / section).glob("*.md"))
        }
        self.guides = {name: GuidePage(name, *renderer.told(text)) for name, text in self._texts.items()}
        self._laid: dict[str, RenderedGuide] = {}
        self._pictures: dict[str, GuidePicture] = {}

    def sections(self) -> dict[str, list[GuidePage]]:
        """Return the pages by section, in file order, without empty sections."""
        found = {section: self.of(section) for section in SECTIONS}
        return {section: guides for section, guides in found.items() if guides}

    def of(self, section: str) -> list[GuidePage]:
        """Return the pages of a section."""
        return [guide for guide in self.guides.values() if posixpath.dirname(guide.name) == section]

    def laid(self, name: str) -> RenderedGuide:
        """Return a page as HTML; raises `KeyError` for an unknown name."""
        if name not in self._laid:
            self._laid[name] = renderer.lay_out(
                self._texts[name], _NeighbourLinks(self, posixpath.dirname(name))
            )
        return self._laid[name]

    def neighbours(self, name: str) -> tuple[GuidePage | None, GuidePage | None]:
        """Return the previous and the next page."""
        names = list(self.guides)
        at = names.index(name)
        before, after = names[at - 1 : at], names[at + 1 : at + 2]
        return (self.guides[before[0]] if before else None, self.guides[after[0]] if after else None)

    def bytes_of(self, picture: str) -> tuple[bytes, str] | None:
        """Return the bytes and content type of an image, or None for an unknown name."""
        path = self._folder / "pictures" / picture
        known = path.suffix in _PICTURES and path.parent.name == "pictures" and path.is_file()
        return (path.read_bytes(), _PICTURES[path.suffix]) if known else None

    def picture(self, name: str) -> GuidePicture | None:
        """Return an image's size and URL, which has its content hash so that it may be cached forever."""
        if name not in self._pictures:
            found = self.bytes_of(name)
            if found is None:
                return None
            digest = hashlib.sha256(found[0]).hexdigest()[:12]
            with Image.open(self._folder / "pictures" / name) as image:
                self._pictures[name] = GuidePicture(renderer.url(f"pictures/{name}?v={digest}"), *image.size)
        return self._pictures[name]

    def source(self, path: str) -> str | None:
        """Return the text of a file in docs/ or the package, by its path in the repository."""
        for place, folder in (("docs/", self._folder), ("src/sixfold/", _PACKAGE)):
            if path.startswith(place):
                return (folder / path.removeprefix(place)).read_text("utf-8")
        return None


class _NeighbourLinks:
    """Resolves the relative links of the pages in one section."""

    def __init__(self, edition: Edition, section: str) -> None:
        self._edition = edition
        self._section = section

    def _at(self, path: str) -> str:
        """Return a relative path as one from the root of the repository."""
        return posixpath.normpath(posixpath.join("docs", self._section, path))

    def linked(self, path: str) -> GuidePage | None:
        """Return the page that a link points to, if any."""
        return self._edition.guides.get(self._at(path).removeprefix("docs/").removesuffix(".md"))

    def picture(self, path: str) -> GuidePicture | None:
        """Return an image, if it exists."""
        return self._edition.picture(self._at(path).removeprefix("docs/pictures/"))

    def source(self, path: str) -> str | None:
        """Return the text of a file, if it exists."""
        return self._edition.source(self._at(path))

    def beside(self, pattern: str) -> Sequence[GuidePage]:
        """Return the pages whose paths match a pattern."""
        wanted = self._at(pattern).removeprefix("docs/")
        return [guide for name, guide in self._edition.guides.items() if fnmatchcase(name, wanted)]


class DocsRepository:
    """The documentation, read again when a file has changed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._stamp: tuple[int, ...] = ()
        self._edition: Edition | None = None

    def edition(self) -> Edition:
        """Return a snapshot of the current files."""
        files = [path for section in (*SECTIONS, "pictures") for path in (self._folder / section).glob("*.*")]
        stamp = tuple(path.stat().st_mtime_ns for path in files)
        if self._edition is None or stamp != self._stamp:
            self._stamp, self._edition = stamp, Edition(self._folder)
        return self._edition
