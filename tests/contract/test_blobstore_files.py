"""Faults of file stores: links, full disks, I/O errors, leftovers, file modes."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sixfold.store import file_store
from sixfold.store.file_store import FileStore

MIB = 1 << 20


class BrokenDisk(FileStore):
    """Fails the nth write or sync."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fail_in: int | None = None
        self.code = errno.EIO

    def _count(self) -> None:
        if self.fail_in is not None:
            self.fail_in -= 1
            if self.fail_in < 0:
                raise OSError(self.code, os.strerror(self.code))

    def _write(self, descriptor: int, data: memoryview) -> int:
        self._count()
        # A slow disk accepts the data in pieces.
        return super()._write(descriptor, data[: 64 << 10])

    def _sync(self, descriptor: int) -> None:
        self._count()
        super()._sync(descriptor)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def new_files(root: Path) -> list[str]:
    return [path.name for path in (root / "~new").iterdir()]


def exists(path: Path) -> bool:
    return path.exists()


async def keys(store: FileStore) -> list[str]:
    return [info.key async for info in store.list()]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_error_at_any_write_leaves_only_the_old_object(tmp_path: Path, code: int) -> None:
    root = tmp_path / "store"
    store = BrokenDisk(root)
    store.code = code
    old, new = os.urandom(200_000), os.urandom(300_000)
    await store.put("a/k", old)
    failures = nth = 0
    for nth in range(100):
        store.fail_in = nth
        try:
            await store.put("a/k", new)
        except OSError as error:
            failures += error.errno == code
        else:
            break
        finally:
            store.fail_in = None
        assert await store.get("a/k") in {old, new}, (
            "whole, though a failed folder sync may leave the new one"
        )
        assert new_files(root) == []
        await store.put("a/k", old)
    assert failures == nth >= 6, "each write and each sync was tried, and failed as it should"
    assert await store.get("a/k") == new


async def test_failed_put_file_keeps_the_source_file(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = BrokenDisk(root)
    await store.put("a/k", b"old")
    staged = tmp_path / "staged"
    staged.write_bytes(b"staged")
    store.fail_in = 0
    with pytest.raises(OSError, match="Input/output"):
        await store.put_file("a/k", staged)
    store.fail_in = None
    assert (staged.read_bytes(), await store.get("a/k"), new_files(root)) == (b"staged", b"old", [])
    await store.put_file("a/k", staged)
    assert (exists(staged), await store.get("a/k")) == (False, b"staged")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_full_disk_during_a_put_keeps_the_old_object(store: FileStore, tmp_path: Path) -> None:
    await store.put("k", b"old")
    with largest_file(MIB), pytest.raises(OSError, match="File too large"):
        await store.put("k", b"n" * (3 * MIB))
    assert (await store.get("k"), new_files(tmp_path / "store")) == (b"old", [])


async def test_file_of_another_filesystem_is_copied(store: FileStore, tmp_path: Path) -> None:
    folders = (Path("/dev/shm"), Path("/var/tmp"))
    other = next((each for each in folders if exists(each) and _device(each) != _device(tmp_path)), None)
    if other is None:
        pytest.skip("there is no second filesystem at /dev/shm or /var/tmp")
    staged = other / f"sixfold-test-{os.getpid()}"
    try:
        staged.write_bytes(b"x" * (MIB + 1))
        with largest_file(MIB // 2), pytest.raises(OSError, match="File too large"):
            await store.put_file("a/k", staged)
        assert exists(staged)
        assert new_files(tmp_path / "store") == []
        info = await store.put_file("a/k", staged)
        assert (info.size, exists(staged)) == (MIB + 1, False)
    finally:
        staged.unlink(missing_ok=True)


def _device(path: Path) -> int:
    return path.stat().st_dev


async def test_hard_linked_file_is_copied(store: FileStore, tmp_path: Path) -> None:
    staged, second = tmp_path / "staged", tmp_path / "second"
    staged.write_bytes(b"before")
    second.hardlink_to(staged)
    await store.put_file("k", staged)
    second.write_bytes(b"changed")
    assert await store.get("k") == b"before"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
async def test_only_regular_files_are_stored(store: FileStore, tmp_path: Path, kind: str) -> None:
    staged = tmp_path / "staged"
    match kind:
        case "link":
            staged.symlink_to("/etc/passwd")
        case "pipe":
            os.mkfifo(staged)
        case _:
            staged.mkdir()
    with pytest.raises(OSError, match="regular"):
        await store.put_file("k", staged)
    assert await keys(store) == []


async def test_links_inside_are_not_followed(store: FileStore, tmp_path: Path) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    await store.put("a/k", b"1")
    (root / "folder").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "a" / "up").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    for key in ("folder/secret", "file", "a/up/outside/secret", "pipe"):
        assert await store.stat(key) is None
        for read in (store.get, store.local_path):
            with pytest.raises(KeyError):
                await read(key)
        assert await store.delete(key) is False
    for key in ("folder/new", "folder/deep/new", "a/up/new"):
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            await store.put(key, b"escaped")
    await store.put("file", b"replaces the link, not what it points at")
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert await keys(store) == ["a/k", "file"]


async def test_swapped_symlink_does_not_expose_files_outside(store: FileStore, tmp_path: Path) -> None:
    root, outside = tmp_path / "store", tmp_path / "outside"
    outside.mkdir()
    (outside / "k").write_bytes(b"secret")
    await store.put("a/k", b"mine")
    stop = threading.Event()

    def swap() -> None:
        folder, aside = root / "a", root / "aside"
        while not stop.is_set():
            with suppress(OSError):
                folder.rename(aside)
                folder.symlink_to(outside)
            with suppress(OSError):
                if folder.is_symlink():
                    folder.unlink()
                aside.rename(folder)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(300):
            with suppress(KeyError):
                assert await store.get("a/k") != b"secret"
            with suppress(OSError):
                await store.put(f"a/{number}", b"new")
            with suppress(OSError):
                await store.delete(f"a/{number}")
    finally:
        stop.set()
        await asyncio.to_thread(swapper.join)
    assert [path.name for path in outside.iterdir()] == ["k"]
    assert (outside / "k").read_bytes() == b"secret"


async def test_key_that_conflicts_with_a_folder_is_refused(store: FileStore, tmp_path: Path) -> None:
    await store.put("a/b", b"1")
    await store.put("c", b"2")
    with pytest.raises(OSError, match="directory"):
        await store.put("a", b"3")
    with pytest.raises(OSError, match="directory"):
        await store.put("c/d", b"4")
    assert await keys(store) == ["a/b", "c"]
    assert new_files(tmp_path / "store") == []


async def test_deleted_folder_is_created_again(store: FileStore, tmp_path: Path) -> None:
    await store.put("a/b/k", b"1")
    await store.delete("a/b/k")
    (tmp_path / "store" / "a" / "b").rmdir()
    await store.put("a/b/k", b"2")
    assert await store.get("a/b/k") == b"2"


async def test_files_are_private(store: FileStore, tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    staged.write_bytes(b"2")
    staged.chmod(0o666)
    await store.put("a/1", b"1")
    await store.put_file("a/2", staged)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*")}
    assert modes == {"~new": 0o700, "a": 0o700, "1": 0o600, "2": 0o600}


async def test_old_temporary_files_of_a_killed_server_are_removed(store: FileStore, tmp_path: Path) -> None:
    new = tmp_path / "store" / "~new"
    new.mkdir(parents=True)
    for name in ("old", "fresh"):
        (new / name).write_bytes(b"half")
    written = os.stat(new / "old").st_mtime - file_store.STALE_SECONDS - 60  # noqa: PTH116 - beside utime
    os.utime(new / "old", (written, written))
    await store.put("k", b"1")
    assert new_files(tmp_path / "store") == ["fresh"]


async def test_file_descriptors_are_closed(store: FileStore) -> None:
    await store.put("a/k", b"x" * MIB)
    before = _descriptors()
    for _ in range(20):
        await store.put("a/k", b"x" * MIB)
        await store.get("a/k")
        await store.stat("a/missing")
        stream = store.stream("a/k")
        await anext(stream)
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
        assert await keys(store) == ["a/k"]
    assert _descriptors() == before


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
