"""Two-way synchronization of a folder and the memory.

A state file stores, for each page, the version and the content hash of the last time when both sides were
equal. A comparison with it shows which side has changed. If both sides have changed, changes to different
lines are merged; otherwise the memory's text replaces the file, and the folder's text is saved as
`name.conflict-<hash>.md`, which is never sent. A page that was renamed on one side is recognized by its ID or
the content of its file, and is renamed on the other side too. An interrupted step is completed, or repeated
with the same result, by the next sync.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold.cli.sync import files
from sixfold.cli.sync.files import CONFLICT, FOLDER
from sixfold.cli.sync.state import (
    LocalSide,
    RemoteFile,
    RemoteListing,
    RemoteSide,
    SyncConflict,
    SyncedFile,
    SyncRefusal,
    SyncResult,
)
from sixfold.core.memory import merge
from sixfold.core.memory.import_export import paths

STATE = "memory-sync.json"
_SAVE_EVERY = 50
_NO_VERSION = -1


class FolderSync:
    """The synchronization of one folder with one memory. A state file of another `server` is ignored."""

    def __init__(
        self,
        folder: Path,
        remote: RemoteSide,
        server: str,
        on_change: Callable[[str, str], None] | None = None,
    ) -> None:
        self._folder = folder
        self._remote = remote
        self._server = server
        self._report = on_change or (lambda _verb, _what: None)
        self._outliner: str | None = None
        self._known: dict[str, SyncedFile] = {}
        self._unsaved = 0
        # Pages whose files cannot be read; they are not deleted files.
        self._skipped: set[str] = set()
        self._reported: list[str] = []
        self.done = SyncResult()

    def run(self) -> SyncResult:
        """Synchronize once and return what was done."""
        self._reported, self.done = self.done.problems, SyncResult()
        self._load()
        local_files = self._scan()
        remote_pages = self._remote.list_pages()
        try:
            self._check_interrupted(remote_pages)
            self._store_ids(remote_pages)
            self._follow_pages(local_files, remote_pages)
            self._follow_files(local_files, remote_pages)
            slugs = local_files.keys() | remote_pages.keys() | self._known.keys()
            for slug in sorted(slugs - self._skipped):
                self._sync_page(slug, local_files.get(slug), remote_pages.get(slug))
            if not all(synced.id for synced in self._known.values()):
                self._store_ids(self._remote.list_pages())
        finally:
            self._save()
        return self.done

    def changes(self) -> SyncResult:
        """Return the result of the last run without the problems that the run before it reported."""
        return replace(
            self.done, problems=[problem for problem in self.done.problems if problem not in self._reported]
        )

    def _check_interrupted(self, there: dict[str, RemoteListing]) -> None:
        """Compare the pages again that an interrupted sync has stored without an ID.

        Another page may have the same slug and version now.
        """
        for slug, synced in self._known.items():
            page = there.get(slug)
            if page is not None and page.version == synced.version and not synced.id:
                data = self._remote.version(slug, synced.version)
                if data is None or files.digest(data) != synced.digest:
                    synced.version = _NO_VERSION

    def _store_ids(self, there: dict[str, RemoteListing]) -> None:
        """Store the IDs of pages that have not changed."""
        for slug, synced in self._known.items():
            page = there.get(slug)
            if page is not None and page.version == synced.version and not synced.id:
                synced.id = page.id

    # -- one page --------------------------------------------------------------------------------

    def _sync_page(self, slug: str, file: LocalSide | None, page: RemoteListing | None) -> None:
        try:
            self._apply_changes(slug, file, page)
        except SyncConflict:
            # The page changed again meanwhile; the next sync handles it.
            return
        except (SyncRefusal, OSError) as error:
            reason = getattr(error, "strerror", None) or error
            self._problem(f"{slug if file is None else file.path}: {reason}")

    def _apply_changes(self, slug: str, file: LocalSide | None, page: RemoteListing | None) -> None:
        state = self._known.get(slug)
        changed_here = (file and file.digest) != (state and state.digest)
        changed_there = page is not None if state is None else page is None or not state.is_version(page)
        if changed_here and file is not None:
            file = self._with_data(file)
        if changed_here and not changed_there:
            # After a conflict, the page has changed since the list of pages was read.
            with contextlib.suppress(SyncConflict):
                self._send(slug, file, state)
                return
        if changed_here:
            self._sync_both(slug, file)
        elif changed_there:
            self._receive(slug, file)

    def _send(self, slug: str, file: LocalSide | None, synced: SyncedFile | None) -> None:
        if file is None:
            if synced is not None:
                self._remote.remove(slug, synced.version)
                self._forget(slug)
                self._note("removed_there", slug)
            return
        base = synced.version if synced is not None else None
        version = self._remote.store(slug, file.data, base, file.path)
        self._record(slug, file, version)
        self._note("sent", slug)

    def _receive(self, slug: str, file: LocalSide | None) -> None:
        """Apply a change of the memory to the folder."""
        page = self._remote.fetch(slug)
        if page is None:
            if file is not None and not self._remove_file(file):
                return
            self._forget(slug)
            self._note("removed_here", slug)
            return
        # Only the version has changed, not the text.
        if file is not None and file.digest == files.digest(page.data):
            self._record(slug, file, page.version)
            return
        self._write_page(slug, file, page)
        self._note("received", slug)

    def _sync_both(self, slug: str, file: LocalSide | None) -> None:
        """Handle a page that changed on both sides, or on one while the other was being written."""
        page = self._remote.fetch(slug)
        if page is None and file is None:
            self._forget(slug)
        elif file is None and page is not None:
            self._write_page(slug, None, page)
            self._note("received", slug)
        elif file is not None and page is None:
            try:
                version = self._remote.store(slug, file.data, None, file.path)
            except SyncConflict:
                # The page was created again meanwhile; the next sync handles it.
                return
            self._record(slug, file, version)
            self._note("sent", slug)
        elif file is not None and page is not None:
            if page.data == file.data:
                self._record(slug, file, page.version)
                return
            self._reconcile(slug, file, page)

    def _reconcile(self, slug: str, file: LocalSide, page: RemoteFile) -> None:
        """Merge two texts of one page; if the changes overlap, save both."""
        text = self._merged(slug, file.data, page.data)
        if text is not None:
            same = text == page.data
            version = page.version if same else self._remote.store(slug, text, page.version, file.path)
            self._write_page(slug, file, RemoteFile(version, text, page.path))
            self._note("merged", slug)
            return
        copy = self._save_conflict(file)
        self._write_page(slug, file, page)
        self._note("conflicts", copy)

    def _merged(self, slug: str, ours: bytes, theirs: bytes) -> bytes | None:
        state = self._known.get(slug)
        base = self._remote.version(slug, state.version) if state is not None else None
        if state is None or base is None or files.digest(base) != state.digest:
            return None
        try:
            merged = merge.texts(base.decode(), ours.decode(), theirs.decode())
        except UnicodeDecodeError:
            return None
        return None if merged.conflicts else merged.text.encode()

    # -- renames ---------------------------------------------------------------------------------

    def _follow_pages(self, here: dict[str, LocalSide], there: dict[str, RemoteListing]) -> None:
        """Move the files of pages that were renamed in the memory, including their local changes."""
        now = {page.id: slug for slug, page in there.items() if page.id}
        for old, synced in sorted(self._known.items()):
            slug = now.get(synced.id, old)
            if slug == old or slug in here or slug in self._known or old in self._skipped:
                continue
            at = old if old in here else self._moved_to(synced, here, there)
            if at is None:
                continue
            try:
                fetched = self._remote.fetch(slug)
                file = self._move(here[at], slug, fetched.path if fetched is not None else "")
            except (SyncRefusal, OSError):
                continue
            if file is not None:
                del here[at]
                here[slug] = file
                self._known[slug] = replace(self._known.pop(old), path=file.path)
                self._note("renamed", f"{old} → {slug}")

    def _moved_to(
        self, synced: SyncedFile, here: dict[str, LocalSide], there: dict[str, RemoteListing]
    ) -> str | None:
        """Return the slug to which an unchanged file was moved, if any."""
        new = (slug for slug in sorted(here) if slug not in self._known and slug not in there)
        return next((slug for slug in new if here[slug].digest == synced.digest), None)

    def _follow_files(self, here: dict[str, LocalSide], there: dict[str, RemoteListing]) -> None:
        """Rename the pages whose files were moved without a change of content."""
        deleted_slugs = {
            state.digest: slug
            for slug, state in self._known.items()
            if slug not in here and slug not in self._skipped and slug in there and state.is_page(there[slug])
        }
        for slug, file in sorted(here.items()):
            old = (
                deleted_slugs.pop(file.digest, None)
                if slug not in self._known and slug not in there
                else None
            )
            if old is None:
                continue
            page, state = there[old], self._known[old]
            try:
                version = self._remote.rename(old, slug, page.version, file.path)
            except (SyncConflict, SyncRefusal):
                continue
            del there[old]
            there[slug] = replace(page, version=version)
            self._known[slug] = replace(self._known.pop(old), path=file.path)
            if page.version == state.version:
                self._record(slug, file, version)
            self._note("renamed", f"{old} → {slug}")

    def _move(self, file: LocalSide, slug: str, origin: str) -> LocalSide | None:
        """Move a file to the path of another slug; return None if it is gone or the path is in use."""
        path = self._path_for(slug, origin)
        target, aside = self._target(slug, path), self._state_path(f"old-{file.digest[:16]}")
        try:
            (self._folder / file.path).rename(aside)
        except FileNotFoundError:
            return None
        try:
            os.link(aside, target)
        except FileExistsError:
            self._restore_file(aside, file.path)
            return None
        aside.unlink()
        return self._read(path)

    # -- the folder ------------------------------------------------------------------------------

    def _scan(self) -> dict[str, LocalSide]:
        local_files: dict[str, LocalSide] = {}
        self._skipped = set()
        settings = itertools.chain(
            self._folder.glob(paths.SETTINGS), sorted(self._folder.glob(f"*/{paths.SETTINGS}"))
        )
        self._outliner = paths.outliner(path.relative_to(self._folder).as_posix() for path in settings)
        by_path = {state.path: (slug, state) for slug, state in self._known.items()}
        listed_files = files.list_files(self._folder)
        for path in sorted(listed_files.pages):
            slug, state = by_path.get(path, (None, None))
            slug = slug or paths.slug(path, self._outliner)
            if not files.is_text(path):
                self._problem(f"{path!a}: its name is not UTF-8 text; rename the file")
            elif slug is None:
                self._problem(f"{path}: its name does not contain a letter or digit")
            elif slug in local_files:
                self._problem(f"{path}: page {slug} is already in {local_files[slug].path}")
            else:
                try:
                    file = self._inspect(path, state)
                except (SyncRefusal, OSError) as error:
                    self._skipped.add(slug)
                    self._problem(f"{path}: {getattr(error, 'strerror', None) or error}")
                    continue
                if file is not None:
                    local_files[slug] = file
        # The page of a document in the folder is not written beside it.
        self._skipped |= listed_files.document_slugs - local_files.keys() - self._known.keys()
        return local_files

    def _inspect(self, path: str, synced: SyncedFile | None) -> LocalSide | None:
        """Return a file's state or None; read its data only if time or size suggests a change."""
        try:
            stat = (self._folder / path).stat()
        except FileNotFoundError:
            return None
        if synced is not None and synced.is_unchanged(stat):
            return LocalSide(path, synced.digest, b"", stat.st_mtime_ns, stat.st_size)
        now = time.time_ns()
        file = self._read(path)
        if file is not None and synced is not None and file.digest == synced.digest:
            synced.mtime_ns, synced.size, synced.seen_ns = file.mtime_ns, file.size, now
        # The files of a folder can have more data than fits in memory.
        return None if file is None else replace(file, data=b"")

    def _with_data(self, file: LocalSide) -> LocalSide:
        """Return a file with its data; raises `SyncConflict` if it has changed since the scan."""
        fresh = self._read(file.path)
        if fresh is None or fresh.digest != file.digest:
            raise SyncConflict
        return fresh

    def _read(self, path: str) -> LocalSide | None:
        """Read a file; return None if it is gone. Raises `SyncRefusal` if it is too large or not regular."""
        try:
            data = files.read(self._folder / path)
            stat = (self._folder / path).stat()
        except FileNotFoundError:
            return None
        return LocalSide(path, files.digest(data), data, stat.st_mtime_ns, stat.st_size)

    def _write_page(self, slug: str, file: LocalSide | None, page: RemoteFile) -> None:
        """Write a page to its file, unless the file has changed meanwhile."""
        path = file.path if file is not None else self._path_for(slug, page.path)
        target = self._target(slug, path)
        fresh = self._write_temporary(page.data)
        try:
            if file is not None and not self._remove_file(file):
                return
            # A link never overwrites a file that was created meanwhile.
            os.link(fresh, target)
        except FileExistsError:
            return
        finally:
            fresh.unlink(missing_ok=True)
        content = self._read(path)
        if content is not None and content.data == page.data:
            self._record(slug, content, page.version)

    def _target(self, slug: str, path: str) -> Path:
        """Return a file's path and create its folder; raises `SyncRefusal` for an invalid path."""
        target = self._folder / path
        if not self._fits(path, slug):
            raise SyncRefusal("this file name does not map to the page")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(self._folder.resolve()):
            raise SyncRefusal("its path is outside the folder, through a symbolic link")
        return target

    def _path_for(self, slug: str, origin: str) -> str:
        """Return the file path for a page: its original path if that is free, or one made from its slug."""
        free = self._fits(origin, slug) and all(synced.path != origin for synced in self._known.values())
        return origin if free else paths.file(slug, self._outliner)

    def _fits(self, path: str, slug: str) -> bool:
        """Return whether a file at `path` maps to the page `slug`."""
        return files.is_page_path(path) and paths.slug(path, self._outliner) == slug

    def _remove_file(self, file: LocalSide) -> bool:
        """Remove a file unless it has changed since it was read; return whether it is removed."""
        source = self._folder / file.path
        aside = self._state_path(f"old-{file.digest[:16]}")
        try:
            source.rename(aside)
        except FileNotFoundError:
            return True
        if files.digest(aside.read_bytes()) == file.digest:
            aside.unlink()
            return True
        self._restore_file(aside, file.path)
        return False

    def _restore_file(self, aside: Path, path: str) -> None:
        """Restore a file that was set aside; if its path is in use again, save it as a conflict copy."""
        try:
            os.link(aside, self._folder / path)
        except FileExistsError:
            data = aside.read_bytes()
            self._save_conflict(LocalSide(path, files.digest(data), data, 0, 0))
        aside.unlink()

    def _save_conflict(self, file: LocalSide) -> str:
        """Save a conflict copy beside a file, named by its hash, and return its path."""
        path = f"{files.stem(file.path)}{CONFLICT}{file.digest[:8]}.md"
        fresh = self._write_temporary(file.data)
        fresh.replace(self._folder / path)
        return path

    def _write_temporary(self, data: bytes) -> Path:
        """Write a temporary file on the same disk, with fsync, and return its path."""
        path = self._state_path(f"new-{os.getpid()}-{files.digest(data)[:16]}")
        files.write_new(path, data)
        return path

    def _state_path(self, name: str) -> Path:
        folder = self._folder / FOLDER
        files.make_state_folder(folder)
        return folder / name

    # -- the state -------------------------------------------------------------------------------

    def _load(self) -> None:
        self._recover()
        try:
            document: Any = json.loads(files.read(self._state_path(STATE), files.MAX_STATE_BYTES))
            rows = document["pages"] if document["server"] == self._server else {}
            self._known = {slug: SyncedFile(**row) for slug, row in rows.items()}
        except FileNotFoundError:
            self._known = {}
        # Without a readable state every page is compared again.
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError, SyncRefusal):
            self._known = {}

    def _recover(self) -> None:
        """Restore files that an interrupted sync had set aside and that the memory does not have."""
        for old in self._state_path("").glob("old-*"):
            try:
                digest = files.digest(files.read(old))
            except (SyncRefusal, OSError):
                # This program sets aside regular files only.
                continue
            target = self._folder / f"recovered{CONFLICT}{digest[:8]}.md"
            if not any(synced.digest == digest for synced in self._saved().values()):
                old.replace(target)
                self._note("conflicts", target.name)
            else:
                old.unlink()
        for new in self._state_path("").glob("new-*"):
            new.unlink()

    def _saved(self) -> dict[str, SyncedFile]:
        try:
            rows = json.loads(files.read(self._state_path(STATE), files.MAX_STATE_BYTES))["pages"]
            return {slug: SyncedFile(**row) for slug, row in rows.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, SyncRefusal):
            return {}

    def _save(self) -> None:
        pages = {slug: msgspec.structs.asdict(synced) for slug, synced in sorted(self._known.items())}
        fresh = self._state_path(f"{STATE}.new")
        document = {"server": self._server, "pages": pages}
        files.write_new(fresh, json.dumps(document, ensure_ascii=False).encode(), durable=False)
        fresh.replace(self._state_path(STATE))
        self._unsaved = 0

    def _record(self, slug: str, file: LocalSide, version: int) -> None:
        page_id = self._known[slug].id if slug in self._known else ""
        times = (file.mtime_ns, file.size, time.time_ns())
        self._known[slug] = SyncedFile(file.path, version, file.digest, *times, page_id)
        self._changed()

    def _forget(self, slug: str) -> None:
        self._known.pop(slug, None)
        self._changed()

    def _changed(self) -> None:
        self._unsaved += 1
        # The state file has all pages, so that a large one is written less often.
        if self._unsaved >= max(_SAVE_EVERY, len(self._known) // 10):
            self._save()

    def _note(self, verb: str, text: str) -> None:
        getattr(self.done, verb).append(text)
        self._report(verb, text)

    def _problem(self, sentence: str) -> None:
        self.done.problems.append(sentence)
        # With --watch, a problem is reported once, not in every round.
        if sentence not in self._reported:
            self._report("problems", sentence)
