"""Contract of every blob store; S3, GCS and Azure are rows of `MAKERS`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from sixfold.core.media.ports import BlobStore, ObjectInfo
from sixfold.store.file_store import FileStore
from tests.harness import buckets, s3

FACTORIES: Mapping[str, Callable[[Path], BlobStore]] = {
    "files": FileStore,
    "s3": buckets.s3_store,
    "gcs": buckets.gcs_store,
    "azure": buckets.azure_store,
}
STORES = [pytest.param(name, marks=s3.NEEDED if name != "files" else ()) for name in FACTORIES]
PIECE = 256 << 10


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return FACTORIES[request.param](tmp_path / "store")


async def keys(store: BlobStore, prefix: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix)]


async def pieces(store: BlobStore, key: str, start: int = 0, length: int | None = None) -> list[bytes]:
    return [piece async for piece in store.stream(key, start, length)]


@pytest.mark.parametrize("size", [0, 1, 1000, PIECE, PIECE + 1, 20 << 20])
async def test_stored_blob_is_read_back(store: BlobStore, size: int) -> None:
    data = os.urandom(size)
    before = time.time_ns() // 1000
    info = await store.put("a/b/c.bin", data, content_type="application/octet-stream")
    assert (info.key, info.size) == ("a/b/c.bin", size)
    assert abs(info.modified_at - before) < 60_000_000, "microseconds since the epoch"
    assert await store.get("a/b/c.bin") == data
    assert b"".join(await pieces(store, "a/b/c.bin")) == data
    assert (await store.local_path("a/b/c.bin")).read_bytes() == data
    result = await store.stat("a/b/c.bin")
    assert result is not None
    assert replace(result, modified_at=info.modified_at) == info
    assert abs(result.modified_at - before) < 60_000_000, "a store may have its own clock"
    assert [object_info async for object_info in store.list()] == [result]


async def test_put_replaces_an_object(store: BlobStore) -> None:
    await store.put("k", b"a longer one")
    await store.put("k", b"short")
    assert await store.get("k") == b"short"
    assert await keys(store) == ["k"]


async def test_ranges_of_a_blob_are_read(store: BlobStore) -> None:
    data = os.urandom(3 * PIECE + 10)
    await store.put("k", data)
    for start, length in [
        (0, 0),
        (0, 1),
        (5, 10),
        (PIECE - 1, 2),
        (7, None),
        (len(data) - 1, 50),
        (0, 2 * PIECE),
    ]:
        stop = len(data) if length is None else start + length
        assert b"".join(await pieces(store, "k", start, length)) == data[start:stop]
    assert await pieces(store, "k", len(data)) == []
    assert await pieces(store, "k", len(data) + 1000, 5) == []
    assert max(map(len, await pieces(store, "k"))) <= PIECE
    with pytest.raises(ValueError, match="must not be negative"):
        await pieces(store, "k", -1)
    with pytest.raises(ValueError, match="must not be negative"):
        await pieces(store, "k", 0, -1)


async def test_missing_key_is_none_or_an_error(store: BlobStore) -> None:
    await store.put("there/one", b"1")
    for key in ("missing", "there", "there/two", "missing/deep/key", "there/one/below"):
        assert await store.stat(key) is None
        assert await store.delete(key) is False
        with pytest.raises(KeyError):
            await store.get(key)
        with pytest.raises(KeyError):
            await store.local_path(key)
        with pytest.raises(KeyError):
            await anext(store.stream(key))
    assert await keys(store, "missing") == []
    assert await keys(store, "there/one/") == []


async def test_delete_returns_whether_the_object_existed(store: BlobStore) -> None:
    await store.put("a/one", b"1")
    await store.put("a/two", b"2")
    assert await store.delete("a/one") is True
    assert await store.delete("a/one") is False
    assert await keys(store) == ["a/two"]
    await store.put("a/one", b"again")
    assert await store.get("a/one") == b"again"


async def test_list_is_ordered_by_key(store: BlobStore) -> None:
    names = [
        "a",
        "a-b",
        "a.b",
        "ab",
        "ab/c",
        "b/c",
        "b-c",
        "b.c/d",
        "b0/d",
        "B/x",
        "0",
        "z/y/x",
        "z/y.x",
        "_",
    ]
    # In a file system, an object and a folder cannot have the same name.
    names.remove("ab")
    for name in names:
        await store.put(name, name.encode())
    assert await keys(store) == sorted(names)
    for prefix in ["", "a", "a-", "b", "b/", "b.", "z/y", "z/y/", "nothing", "z/y/x"]:
        assert await keys(store, prefix) == sorted(name for name in names if name.startswith(prefix))


async def test_put_file_stores_a_file(store: BlobStore, tmp_path: Path) -> None:
    source = tmp_path / "staged"
    source.write_bytes(b"from a worker")
    os.utime(source, (1, 1))
    info = await store.put_file("out/1", source, content_type="image/webp")
    assert (info.size, await store.get("out/1")) == (13, b"from a worker")
    assert abs(info.modified_at - time.time_ns() // 1000) < 60_000_000, "dated when it was stored"
    source.unlink(missing_ok=True)
    assert await store.get("out/1") == b"from a worker"
    with pytest.raises(OSError, match="No such file"):
        await store.put_file("out/2", tmp_path / "none")
    assert await keys(store) == ["out/1"]


async def test_readers_see_complete_objects_during_writes(store: BlobStore) -> None:
    versions = [bytes([number]) * (PIECE * 2 + number) for number in range(8)]
    await store.put("k", versions[0])
    torn: list[int] = []
    done_event = asyncio.Event()

    async def read() -> int:
        reads = 0
        while not done_event.is_set():
            for data in (await store.get("k"), b"".join(await pieces(store, "k"))):
                reads += 1
                if data not in versions:
                    torn.append(len(data))
        return reads

    async def write(seed: int) -> None:
        for number in range(20):
            await store.put("k", versions[(number * seed) % 8])

    readers = [asyncio.create_task(read()) for _ in range(3)]
    await asyncio.gather(*(write(seed) for seed in (1, 3, 5)))
    done_event.set()
    assert sum(await asyncio.gather(*readers)) > 0
    assert torn == []


async def test_concurrent_puts_into_new_folders_succeed(store: BlobStore) -> None:
    names = [f"{number % 7}/{number % 3}/{number}" for number in range(100)]
    await asyncio.gather(*(store.put(name, name.encode()) for name in names))
    assert await keys(store) == sorted(names)
    assert [await store.get(name) for name in names] == [name.encode() for name in names]


# -- keys that want out ----------------------------------------------------------------------------


def hostile() -> list[str]:
    """Return 200 strings that are not valid keys, most of them path traversals."""
    climbs = [
        "..",
        "../",
        "../x",
        "a/../x",
        "a/..",
        "./x",
        "a/./x",
        ".",
        "/",
        "//",
        "/etc/passwd",
        "a//b",
        "a/",
        "/a",
    ]
    dots = [
        "%2e%2e/x",
        "%2e%2e%2fx",
        "..%2fx",
        "%252e%252e/x",
        "..\\x",
        "a\\..\\x",
        "..;/x",
        "....//x",
        "..%00/x",
    ]
    unicode = [
        "\u2025/x",
        "\uff0e\uff0e/x",
        "a\uff0fb",
        "\u2215etc",
        "caf\u00e9",
        "\u202ex",
        "\ud800",
        "\u00e0/..",
        "\u0661",
    ]
    controls = [f"a{chr(code)}b" for code in [*range(33), 127]]
    signs = [f"a{sign}b" for sign in "!\"#$%&'()*+,:;<=>?@[]^`{|}~"]
    ends = [
        "a\n",
        "\na",
        "a\x00.png",
        "x\x00",
        "",
        " ",
        "a ",
        " a",
        "\t",
        "a/\n",
        "a\r\n",
        "~new",
        "~new/x",
        "~/x",
    ]
    windows = ["C:\\x", "C:/x", "\\\\host\\share", "\\\\?\\C:\\x", "a:b", "file:///etc/passwd", "a|b", "nul:"]
    lengths = ["a" * 256, "a/" * 600 + "a", "a" * 1025, "x/" + "b" * 256, "/".join(["c" * 255] * 5)]
    deep = ["../" * depth + "etc/passwd" for depth in range(1, 30)]
    inner = ["a/" * depth + "../" * (depth + 1) + "x" for depth in range(1, 30)]
    tails = [f"{end}/.." for end in "abcdefghijklmnopqrstuvwxyz"] + [f"{end}/./{end}" for end in "abcdefgh"]
    return climbs + dots + unicode + controls + signs + ends + windows + lengths + deep + inner + tails


async def test_hostile_keys_are_refused(store: BlobStore, tmp_path: Path) -> None:
    corpus = sorted(set(hostile()))
    assert len(corpus) >= 200
    outside = {path: path.read_bytes() for path in _outside(tmp_path)}
    staged = tmp_path / "staged"
    for key in corpus:
        staged.write_bytes(b"escaped")
        with pytest.raises(ValueError, match="not a valid object key"):
            await store.put(key, b"escaped")
        with pytest.raises(ValueError, match="not a valid object key"):
            await store.put_file(key, staged)
        for read in (store.stat, store.get, store.local_path, store.delete):
            with pytest.raises(ValueError, match="not a valid object key"):
                await read(key)
        with pytest.raises(ValueError, match="not a valid object key"):
            await anext(store.stream(key))
    staged.unlink()
    assert {path: path.read_bytes() for path in _outside(tmp_path)} == outside
    assert await keys(store) == []


async def test_hostile_prefixes_list_nothing_outside(store: BlobStore) -> None:
    await store.put("a/b", b"1")
    for prefix in hostile():
        try:
            result = await keys(store, prefix)
        except ValueError:
            continue
        assert all(key.startswith(prefix) for key in result), prefix


def _outside(tmp_path: Path) -> list[Path]:
    inside = tmp_path / "store"
    return [path for path in tmp_path.rglob("*") if path.is_file() and inside not in path.parents]


async def test_unusual_valid_keys_are_accepted(store: BlobStore) -> None:
    fine = [
        "a",
        "...",
        "a..b",
        ".hidden",
        "-",
        "_",
        "-rf",
        "a" * 255,
        "/".join(["d"] * 512),
        "x/....",
        "0.0/.x",
    ]
    for key in fine:
        info: ObjectInfo = await store.put(key, key.encode())
        assert info.key == key
        assert await store.get(key) == key.encode()
    assert await keys(store) == sorted(fine)
