"""The guides that this installation has: in a checkout docs/ itself, in a wheel the copy that it carries."""

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
    "reference": "Look up",
    "reference/http": "HTTP",
    "architecture": "Architecture",
}
_PICTURES = {".webp": "image/webp", ".jpg": "image/jpeg"}


class Edition:
    """The guides as they are at one time. A guide is laid out when it is first asked for."""

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
        """The guides of each section that has any, in the order of their files."""
        found = {section: self.of(section) for section in SECTIONS}
        return {section: guides for section, guides in found.items() if guides}

    def of(self, section: str) -> list[GuidePage]:
        """The guides of a section."""
        return [guide for guide in self.guides.values() if posixpath.dirname(guide.name) == section]

    def laid(self, name: str) -> RenderedGuide:
        """A guide as HTML; raises `KeyError` for an unknown name."""
        if name not in self._laid:
            self._laid[name] = renderer.lay_out(
                self._texts[name], _NeighbourLinks(self, posixpath.dirname(name))
            )
        return self._laid[name]

    def neighbours(self, name: str) -> tuple[GuidePage | None, GuidePage | None]:
        """The guides before and after one in the order of reading."""
        names = list(self.guides)
        at = names.index(name)
        before, after = names[at - 1 : at], names[at + 1 : at + 2]
        return (self.guides[before[0]] if before else None, self.guides[after[0]] if after else None)

    def bytes_of(self, picture: str) -> tuple[bytes, str] | None:
        """A picture and its type; None for an unknown name."""
        path = self._folder / "pictures" / picture
        known = path.suffix in _PICTURES and path.parent.name == "pictures" and path.is_file()
        return (path.read_bytes(), _PICTURES[path.suffix]) if known else None

    def picture(self, name: str) -> GuidePicture | None:
        """Where a picture is served, with its content's hash, so that it may be kept for ever."""
        if name not in self._pictures:
            found = self.bytes_of(name)
            if found is None:
                return None
            digest = hashlib.sha256(found[0]).hexdigest()[:12]
            with Image.open(self._folder / "pictures" / name) as image:
                self._pictures[name] = GuidePicture(renderer.url(f"pictures/{name}?v={digest}"), *image.size)
        return self._pictures[name]

    def source(self, path: str) -> str | None:
        """A file beside the guides, or one of the package, by its path in the sources."""
        for place, folder in (("docs/", self._folder), ("src/sixfold/", _PACKAGE)):
            if path.startswith(place):
                return (folder / path.removeprefix(place)).read_text("utf-8")
        return None


class _NeighbourLinks:
    """What stands around the guides of one section."""

    def __init__(self, edition: Edition, section: str) -> None:
        self._edition = edition
        self._section = section

    def _at(self, path: str) -> str:
        """A relative path, seen from the root of the sources."""
        return posixpath.normpath(posixpath.join("docs", self._section, path))

    def linked(self, path: str) -> GuidePage | None:
        """The guide that a link leads to."""
        return self._edition.guides.get(self._at(path).removeprefix("docs/").removesuffix(".md"))

    def picture(self, path: str) -> GuidePicture | None:
        """A picture."""
        return self._edition.picture(self._at(path).removeprefix("docs/pictures/"))

    def source(self, path: str) -> str | None:
        """The text of a file."""
        return self._edition.source(self._at(path))

    def beside(self, pattern: str) -> Sequence[GuidePage]:
        """The guides whose paths match a pattern."""
        wanted = self._at(pattern).removeprefix("docs/")
        return [guide for name, guide in self._edition.guides.items() if fnmatchcase(name, wanted)]


class DocsRepository:
    """The newest edition: a guide that is written while the server runs is there at the next look."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._stamp: tuple[int, ...] = ()
        self._edition: Edition | None = None

    def edition(self) -> Edition:
        """The guides as they are now."""
        files = [path for section in (*SECTIONS, "pictures") for path in (self._folder / section).glob("*.*")]
        stamp = tuple(path.stat().st_mtime_ns for path in files)
        if self._edition is None or stamp != self._stamp:
            self._stamp, self._edition = stamp, Edition(self._folder)
        return self._edition
