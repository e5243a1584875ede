"""A folder and the memory, kept alike both ways: what changed on one side goes to the other, nothing is lost.

A state file remembers, for each page, the version and the content of the last time when both sides agreed.
With it each side tells whether *it* has changed. Where both have, changes that do not touch are merged; else
the memory's text takes the file, and the folder's stays beside it as `name.conflict-<hash>.md`, which is
never sent. A step that is cut off is found half done and finished, or done again to the same end.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from sixfold.core.memory import merge, slugs
from sixfold.core.memory.exchange.archives import ENDINGS

FOLDER = ".sixfold"
STATE = "memory-sync.json"
CONFLICT = ".conflict-"
_SAVE_EVERY = 50
_SETTLED_NS = 2_000_000_000  # a file changed so shortly before it was read may change unseen


class Clash(Exception):
    """The page is no longer at the version that was named, or is there when it should be new."""


class Refusal(Exception):
    """The memory does not take this file; the text says why."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A page as a file: its version, its bytes, the path that it came from ("" if it did not)."""

    version: int
    data: bytes
    path: str = ""


class Remote(Protocol):
    """The memory, as a sync sees it."""

    def listed(self) -> dict[str, int]:
        """Every page's version by its slug."""
        ...

    def fetch(self, slug: str) -> RemoteFile | None:
        """A page as a file; None where there is none any more."""
        ...

    def version(self, slug: str, number: int) -> bytes | None:
        """What a page said as a file at one of its versions; None where that is not known."""
        ...

    def store(self, slug: str, data: bytes, version: int | None) -> int:
        """Write a page at `version` (None: not there yet); gives the new one. Raises `Clash`, `Refusal`."""
        ...

    def remove(self, slug: str, version: int) -> None:
        """Delete a page that is at `version`. Raises `Clash`."""
        ...

    def rename(self, slug: str, to: str, version: int) -> int:
        """Give a page that is at `version` another slug; gives the new version. Raises `Clash`."""
        ...


@dataclass(slots=True)
class Known:
    """What was the same on both sides: the file's path and content, the page's version."""

    path: str
    version: int
    digest: str
    mtime_ns: int = 0
    size: int = -1
    seen_ns: int = 0

    def stands(self, stat: os.stat_result) -> bool:
        """Whether a file surely still has this content, as far as its times and size tell."""
        same = (stat.st_mtime_ns, stat.st_size) == (self.mtime_ns, self.size)
        return same and self.mtime_ns + _SETTLED_NS < self.seen_ns


@dataclass(slots=True)
class Done:
    """What a sync has done, as slugs and paths."""

    sent: list[str] = field(default_factory=list[str])
    received: list[str] = field(default_factory=list[str])
    removed_here: list[str] = field(default_factory=list[str])
    removed_there: list[str] = field(default_factory=list[str])
    renamed: list[str] = field(default_factory=list[str])
    merged: list[str] = field(default_factory=list[str])
    conflicts: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return any(self.plain().values())

    def plain(self) -> dict[str, list[str]]:
        """The same for a program."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


@dataclass(frozen=True, slots=True)
class Local:
    """A file of the folder as it was just found; `data` is not read where it surely is as it was."""

    path: str
    digest: str
    data: bytes
    mtime_ns: int
    size: int


class Sync:
    """One folder and one memory. `server` tells which: a state of another server's is not used."""

    def __init__(
        self, folder: Path, remote: Remote, server: str, watch: Callable[[str, str], None] | None = None
    ) -> None:
        self._folder = folder
        self._remote = remote
        self._server = server
        self._tell = watch or (lambda _verb, _what: None)
        self._known: dict[str, Known] = {}
        self._unsaved = 0
        self._told: list[str] = []
        self.done = Done()

    def run(self) -> Done:
        """Bring both sides together once; gives what that took."""
        self._told, self.done = self.done.problems, Done()
        self._load()
        here = self._scan()
        there = self._remote.listed()
        try:
            self._follow_renames(here, there)
            for slug in sorted(here.keys() | there.keys() | self._known.keys()):
                self._bring_together(slug, here.get(slug), there.get(slug))
        finally:
            self._save()
        return self.done

    # -- one page --------------------------------------------------------------------------------

    def _bring_together(self, slug: str, file: Local | None, version: int | None) -> None:
        known = self._known.get(slug)
        digest = file.digest if file is not None else None
        changed_here = digest != (known.digest if known is not None else None)
        changed_there = version != (known.version if known is not None else None)
        try:
            if changed_here and not changed_there:
                try:
                    self._send(slug, file, known)
                except Clash:
                    self._both(slug, file)
            elif changed_here:
                self._both(slug, file)
            elif changed_there:
                self._receive(slug, file)
        except Clash:
            return  # it changed again in this moment: the next sync meets it
        except Refusal as refusal:
            self._problem(f"{file.path if file is not None else slug}: {refusal}")
        except OSError as error:
            self._problem(f"{file.path if file is not None else slug}: {error.strerror or error}")

    def _send(self, slug: str, file: Local | None, known: Known | None) -> None:
        """Only the folder has changed."""
        if file is None:
            if known is not None:
                self._remote.remove(slug, known.version)
                self._forget(slug)
                self._note("removed_there", slug)
            return
        version = self._remote.store(slug, file.data, known.version if known is not None else None)
        self._agree(slug, file, version)
        self._note("sent", slug)

    def _receive(self, slug: str, file: Local | None) -> None:
        """Only the memory has changed."""
        found = self._remote.fetch(slug)
        if found is None:
            if file is not None and not self._take_away(file):
                return
            self._forget(slug)
            self._note("removed_here", slug)
            return
        self._put(slug, file, found)
        self._note("received", slug)

    def _both(self, slug: str, file: Local | None) -> None:
        """Both have changed, or one did while the other was being written."""
        found = self._remote.fetch(slug)
        if found is None and file is None:
            self._forget(slug)
        elif file is None and found is not None:
            self._put(slug, None, found)
            self._note("received", slug)
        elif file is not None and found is None:
            try:
                version = self._remote.store(slug, file.data, None)
            except Clash:
                return  # it came back in this moment: the next sync meets it
            self._agree(slug, file, version)
            self._note("sent", slug)
        elif file is not None and found is not None:
            if found.data == file.data:
                self._agree(slug, file, found.version)
                return
            self._reconcile(slug, file, found)

    def _reconcile(self, slug: str, file: Local, found: RemoteFile) -> None:
        """Two texts of one page: merged where the changes do not touch, else both kept."""
        text = self._merged(slug, file.data, found.data)
        if text is not None:
            version = found.version if text == found.data else self._remote.store(slug, text, found.version)
            self._put(slug, file, RemoteFile(version, text, found.path))
            self._note("merged", slug)
            return
        copy = self._keep_aside(file)
        self._put(slug, file, found)
        self._note("conflicts", copy)

    def _merged(self, slug: str, ours: bytes, theirs: bytes) -> bytes | None:
        known = self._known.get(slug)
        base = self._remote.version(slug, known.version) if known is not None else None
        if known is None or base is None or _digest(base) != known.digest:
            return None
        try:
            made = merge.texts(base.decode(), ours.decode(), theirs.decode())
        except UnicodeDecodeError:
            return None
        return None if made.conflicts else made.text.encode()

    def _follow_renames(self, here: dict[str, Local], there: dict[str, int]) -> None:
        """A file that was moved, and is otherwise the same, is a page with another slug."""
        gone = {
            known.digest: slug
            for slug, known in self._known.items()
            if slug not in here and there.get(slug) == known.version
        }
        for slug, file in sorted(here.items()):
            old = gone.pop(file.digest, None) if slug not in self._known and slug not in there else None
            if old is None:
                continue
            try:
                version = self._remote.rename(old, slug, self._known[old].version)
            except (Clash, Refusal):
                continue
            self._forget(old)
            del there[old]
            there[slug] = version
            self._agree(slug, file, version)
            self._note("renamed", f"{old} → {slug}")

    # -- the folder ------------------------------------------------------------------------------

    def _scan(self) -> dict[str, Local]:
        """Every page of the folder by its slug."""
        found: dict[str, Local] = {}
        by_path = {known.path: (slug, known) for slug, known in self._known.items()}
        for path in sorted(_pages(self._folder)):
            slug, known = by_path.get(path, (None, None))
            slug = slug or slugs.loosely(_stem(path))
            if slug is None:
                self._problem(f"{path}: it has no letter or digit in its name")
            elif slug in found:
                self._problem(f"{path}: {found[slug].path} is the page {slug} already")
            else:
                file = self._look(path, known)
                if file is not None:
                    found[slug] = file
        return found

    def _look(self, path: str, known: Known | None) -> Local | None:
        """A file, read unless it surely says what it said."""
        try:
            stat = (self._folder / path).stat()
        except FileNotFoundError:
            return None
        if known is not None and known.stands(stat):
            return Local(path, known.digest, b"", stat.st_mtime_ns, stat.st_size)
        seen = time.time_ns()
        file = self._read(path)
        if file is not None and known is not None and file.digest == known.digest:
            known.mtime_ns, known.size, known.seen_ns = file.mtime_ns, file.size, seen
        return file

    def _read(self, path: str) -> Local | None:
        """A file as it is now; None when it has just gone."""
        try:
            data = (self._folder / path).read_bytes()
            stat = (self._folder / path).stat()
        except FileNotFoundError:
            return None
        return Local(path, _digest(data), data, stat.st_mtime_ns, stat.st_size)

    def _put(self, slug: str, file: Local | None, found: RemoteFile) -> None:
        """Make the file say what the page says, unless somebody has changed it in this moment."""
        path = file.path if file is not None else self._path_for(slug, found.path)
        target = self._folder / path
        if not _is_pages(path) or slugs.loosely(_stem(path)) != slug:
            raise Refusal("a file of this name would not be taken for the page")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(self._folder.resolve()):
            raise Refusal("its folder leads out of this one")
        fresh = self._write_aside(found.data)
        try:
            if file is not None and not self._take_away(file):
                return
            os.link(fresh, target)  # never over a file that has come in between
        except FileExistsError:
            return
        finally:
            fresh.unlink(missing_ok=True)
        written = self._read(path)
        if written is not None and written.data == found.data:
            self._agree(slug, written, found.version)

    def _path_for(self, slug: str, origin: str) -> str:
        """Where a page of the memory lies in the folder: where it came from, if that is in here and free."""
        taken = {known.path for known in self._known.values()}
        fits = _is_pages(origin) and slugs.loosely(_stem(origin)) == slug and origin not in taken
        return origin if fits else f"{slug}.md"

    def _take_away(self, file: Local) -> bool:
        """Remove a file that still says what was read; one that was changed meanwhile stays. Says whether."""
        source = self._folder / file.path
        aside = self._own(f"old-{file.digest[:16]}")
        try:
            source.rename(aside)
        except FileNotFoundError:
            return True
        if _digest(aside.read_bytes()) == file.digest:
            aside.unlink()
            return True
        try:
            os.link(aside, source)
        except FileExistsError:
            self._keep_aside(Local(file.path, _digest(aside.read_bytes()), aside.read_bytes(), 0, 0))
        aside.unlink()
        return False

    def _keep_aside(self, file: Local) -> str:
        """A copy of a file beside it, named by its content; gives its path."""
        path = f"{_stem(file.path)}{CONFLICT}{file.digest[:8]}.md"
        fresh = self._write_aside(file.data)
        fresh.replace(self._folder / path)
        return path

    def _write_aside(self, data: bytes) -> Path:
        """A new file with this content, on the same disk and safe on it."""
        path = self._own(f"new-{os.getpid()}-{_digest(data)[:16]}")
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path

    def _own(self, name: str) -> Path:
        folder = self._folder / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / name

    # -- the state -------------------------------------------------------------------------------

    def _load(self) -> None:
        self._recover()
        try:
            document: Any = json.loads(self._own(STATE).read_text("utf-8"))
            rows = document["pages"] if document["server"] == self._server else {}
            self._known = {slug: Known(**row) for slug, row in rows.items()}
        except FileNotFoundError:
            self._known = {}
        except (ValueError, TypeError, KeyError):  # a state that cannot be read: everything is compared anew
            self._known = {}

    def _recover(self) -> None:
        """Files that a sync was moving when it was cut off: those that the memory does not know come back."""
        for old in self._own("").glob("old-*"):
            digest = _digest(old.read_bytes())
            kept = self._folder / f"recovered{CONFLICT}{digest[:8]}.md"
            if not any(known.digest == digest for known in self._saved().values()):
                old.replace(kept)
                self._note("conflicts", kept.name)
            else:
                old.unlink()
        for new in self._own("").glob("new-*"):
            new.unlink()

    def _saved(self) -> dict[str, Known]:
        try:
            rows = json.loads(self._own(STATE).read_text("utf-8"))["pages"]
            return {slug: Known(**row) for slug, row in rows.items()}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def _save(self) -> None:
        pages = {
            slug: {spec.name: getattr(known, spec.name) for spec in fields(known)}
            for slug, known in sorted(self._known.items())
        }
        fresh = self._own(f"{STATE}.new")
        fresh.write_text(json.dumps({"server": self._server, "pages": pages}, ensure_ascii=False), "utf-8")
        fresh.replace(self._own(STATE))
        self._unsaved = 0

    def _agree(self, slug: str, file: Local, version: int) -> None:
        self._known[slug] = Known(file.path, version, file.digest, file.mtime_ns, file.size, time.time_ns())
        self._changed()

    def _forget(self, slug: str) -> None:
        self._known.pop(slug, None)
        self._changed()

    def _changed(self) -> None:
        self._unsaved += 1
        if self._unsaved >= _SAVE_EVERY:
            self._save()

    def _note(self, verb: str, what: str) -> None:
        getattr(self.done, verb).append(what)
        self._tell(verb, what)

    def _problem(self, sentence: str) -> None:
        self.done.problems.append(sentence)
        if sentence not in self._told:  # a watch says it once, not every time it looks
            self._tell("problems", sentence)


def _pages(folder: Path) -> Iterator[str]:
    """The paths of a folder's markdown files; hidden ones, links and conflict copies are none."""
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(base) / name
            found = path.relative_to(folder).as_posix()
            if _is_pages(found) and not path.is_symlink():
                yield found


def _is_pages(path: str) -> bool:
    """Whether a path within the folder is a page's: markdown, in the folder, not hidden, no conflict copy."""
    parts = path.split("/")
    plain = path.lower().endswith(ENDINGS) and CONFLICT not in path and "\\" not in path and "\0" not in path
    return plain and not any(part.startswith(".") or not part for part in parts)


def _stem(path: str) -> str:
    """A page's path without its ending."""
    return path[: path.rindex(".")]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
