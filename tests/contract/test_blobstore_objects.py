"""Faults of object stores: outages, false responses, delays, races; and their cache."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sixfold import errors, settings
from sixfold.core.media.blob_keys import blob_key
from sixfold.store.blob_cache import BlobCache, CacheLimits
from sixfold.store.buckets import BucketAccess, InvalidUrl, open_bucket
from sixfold.store.object_store import PART_BYTES, ObjectOptions, ObjectStore
from tests.fakes.faulty_proxy import FaultyProxy, faulty_proxy
from tests.harness import azure, buckets, s3
from tests.harness.waiting import wait_until

pytestmark = s3.NEEDED
MIB = 1 << 20
ANGRY = "The object store currently returns errors; nothing was changed"
REFUSES = "The object store refuses this server's credentials"
SLOW = "The object store did not respond in time; nothing was changed"
UNREACHABLE = "The object store cannot be reached; nothing was changed"


def behind(front: FaultyProxy, folder: Path, name: str, seconds: float = 5) -> ObjectStore:
    access = BucketAccess({**s3.server().options, "endpoint": front.endpoint}, seconds)
    return ObjectStore(
        open_bucket(f"s3://{name}", access), buckets.cache(folder / "cache"), ObjectOptions(by_content=True)
    )


def list_cache(folder: Path) -> list[Path]:
    """Every file of a cache, unfinished ones included."""
    return [path for path in (folder / "cache").rglob("*") if path.is_file()]


async def everything(store: ObjectStore, key: str) -> list[Callable[[], Awaitable[object]]]:
    async def stream() -> bytes:
        return b"".join([piece async for piece in store.stream(key)])

    async def list_all() -> list[str]:
        return [info.key async for info in store.list()]

    reads = [lambda: store.get(key), lambda: store.stat(key), lambda: store.local_path(key), stream, list_all]
    return [lambda: store.put(key, b"new"), lambda: store.delete(key), *reads]


# -- outages ---------------------------------------------------------------------------------------


FAULTS = {"500": ANGRY, "403": REFUSES, "hang": SLOW, "drop": UNREACHABLE}


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_failure_is_store_failed_and_leaves_no_object(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    name = s3.server().new_bucket()
    async with faulty_proxy(s3.server().port, lambda _number, _line: fault) as front:
        # Only a slow store needs a short limit, which another fault could exceed on a busy machine.
        store = behind(front, tmp_path, name, seconds=0.3 if FAULTS[fault] == SLOW else 20.0)
        for work in await everything(store, blob_key(b"new")):
            with pytest.raises(errors.StoreFailed) as excinfo:
                await work()
            assert excinfo.value.message == FAULTS[fault]
    assert [info.key async for info in buckets.content_store(tmp_path, f"s3://{name}").list()] == []
    assert list_cache(tmp_path) == []
    assert "secret-of-the-store" not in caplog.text
    assert s3.KEY not in caplog.text


async def test_unreachable_store_is_store_failed(tmp_path: Path) -> None:
    access = BucketAccess({**s3.server().options, "endpoint": "http://127.0.0.1:1"}, 0.2)
    store = ObjectStore(open_bucket("s3://bucket", access), buckets.cache(tmp_path / "cache"))
    for work in await everything(store, "key"):
        with pytest.raises(errors.StoreFailed, match="cannot be reached"):
            await work()


async def test_missing_bucket_is_not_a_missing_object(tmp_path: Path) -> None:
    store = buckets.content_store(tmp_path, "s3://no-such-bucket")
    key = blob_key(b"1")
    for work in (lambda: store.get(key), lambda: store.put(key, b"1"), lambda: store.local_path(key)):
        with pytest.raises(errors.StoreFailed, match="bucket does not exist"):
            await work()


async def test_missing_conditional_writes_are_detected_once(tmp_path: Path) -> None:
    # The first attempt and five retries.
    tries = 6
    async with faulty_proxy(s3.server().port, lambda number, _: "501" if number < tries else "pass") as front:
        store = behind(front, tmp_path, s3.server().new_bucket())
        for data in (b"one", b"two"):
            await store.put(blob_key(data), data)
            assert await store.get(blob_key(data)) == data
        assert front.methods() == ["PUT"] * tries + ["PUT", "HEAD", "PUT"]


async def test_transient_errors_are_retried(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    async with faulty_proxy(
        s3.server().port, lambda number, _: "500" if number % 3 == 0 else "pass"
    ) as front:
        store = behind(front, tmp_path, s3.server().new_bucket())
        await store.put("key", data)
        assert await store.get("key") == data
        assert len(front.request_lines) > 2


@pytest.mark.parametrize("size", [1000, 3 * PART_BYTES])
async def test_interrupted_upload_leaves_no_partial_object(tmp_path: Path, size: int) -> None:
    name, data = s3.server().new_bucket(), os.urandom(size)
    staged = tmp_path / "staged"
    staged.write_bytes(data)
    key = blob_key(data)
    sending = lambda _, line: "drop" if line.startswith("PUT") else "pass"  # noqa: E731 - a rule in one line
    async with faulty_proxy(s3.server().port, sending) as front:
        store = behind(front, tmp_path, name, seconds=0.3)
        with pytest.raises(errors.StoreFailed):
            await store.put_file(key, staged)
    full_store = buckets.content_store(tmp_path, f"s3://{name}")
    assert await full_store.stat(key) is None
    assert staged.read_bytes() == data, "it can be tried again"
    assert list_cache(tmp_path) == []
    await full_store.put_file(key, staged)
    assert await full_store.get(key) == data


@pytest.mark.parametrize("fault", ["cut", "lie"])
@pytest.mark.parametrize("size", [1000, 2 * MIB])
async def test_truncated_or_changed_reads_are_refused(tmp_path: Path, fault: str, size: int) -> None:
    data, name = os.urandom(size), s3.server().new_bucket()
    key = blob_key(data)
    await buckets.content_store(tmp_path / "writer", f"s3://{name}").put(key, data)
    reading = lambda _, line: fault if line.startswith("GET") else "pass"  # noqa: E731 - a rule in one line
    async with faulty_proxy(s3.server().port, reading) as front:
        store = behind(front, tmp_path, name, seconds=0.3)
        for read in (store.get, store.local_path):
            with pytest.raises(errors.StoreFailed):
                await read(key)
    assert list_cache(tmp_path) == []


# -- content ---------------------------------------------------------------------------------------


async def test_concurrent_writers_of_equal_content_succeed(tmp_path: Path) -> None:
    name, data = s3.server().new_bucket(), os.urandom(MIB)
    key = blob_key(data)
    stores = [buckets.content_store(tmp_path / str(number), f"s3://{name}") for number in range(4)]
    infos = await asyncio.gather(*(store.put(key, data) for store in stores for _ in range(3)))
    assert {(info.key, info.size) for info in infos} == {(key, MIB)}
    assert [info.key async for info in stores[0].list()] == [key]
    assert await stores[3].get(key) == data


async def test_existing_content_is_kept_unless_soon_swept(tmp_path: Path) -> None:
    data, name = b"some content", s3.server().new_bucket()
    key = blob_key(data)
    async with faulty_proxy(s3.server().port, lambda *_: "pass") as front:
        store = behind(front, tmp_path, name)
        first = await store.put(key, data)
        assert (await store.put(key, data)).tag == first.tag
        assert front.methods() == ["PUT", "PUT", "HEAD"], "the second one is refused"
        access = BucketAccess({**s3.server().options, "endpoint": front.endpoint}, 5)
        options = ObjectOptions(by_content=True, refresh_seconds=0)
        aged = ObjectStore(open_bucket(f"s3://{name}", access), buckets.cache(tmp_path / "cache"), options)
        await aged.put(key, data)
        assert [line.split()[0] for line in front.request_lines][3:] == ["PUT", "HEAD", "PUT"], (
            "and here it is renewed"
        )


async def test_azure_stores_equal_content_once(tmp_path: Path) -> None:
    account, data = azure.server(), os.urandom(1000)
    bucket = open_bucket(f"az://{account.new_container()}", BucketAccess(account.options))
    store = ObjectStore(bucket, buckets.cache(tmp_path / "cache"), ObjectOptions(by_content=True))
    before = account.writes
    first = await store.put(blob_key(data), data)
    assert (await store.put(blob_key(data), data)).tag == first.tag
    assert account.writes == before + 1


async def test_existing_large_file_is_not_uploaded_again(tmp_path: Path) -> None:
    data, name = os.urandom(PART_BYTES + 1), s3.server().new_bucket()
    key, staged = blob_key(data), tmp_path / "staged"
    async with faulty_proxy(s3.server().port, lambda *_: "pass") as front:
        store = behind(front, tmp_path, name)
        await store.put(key, data)
        sent = len(front.of("PUT"))
        staged.write_bytes(data)
        await store.put_file(key, staged)
        assert (sent, len(front.of("PUT"))) == (2, 2)
    assert not staged.exists()


async def test_blob_just_stored_is_read_from_the_local_cache(tmp_path: Path) -> None:
    data, upload = os.urandom(MIB), os.urandom(MIB)
    staged = tmp_path / "staged"
    staged.write_bytes(upload)
    async with faulty_proxy(s3.server().port, lambda *_: "pass") as front:
        store = behind(front, tmp_path, s3.server().new_bucket())
        await store.put(blob_key(data), data)
        await store.put_file(blob_key(upload), staged)
        assert await store.get(blob_key(data)) == data
        assert (await store.local_path(blob_key(upload))).read_bytes() == upload
        part = [piece async for piece in store.stream(blob_key(upload), 1000, 300_000)]
        assert b"".join(part) == upload[1000:301_000]
        assert front.of("GET") == []


async def test_concurrent_reads_fetch_a_file_once(tmp_path: Path) -> None:
    data, name = os.urandom(3 * MIB), s3.server().new_bucket()
    key = blob_key(data)
    await buckets.content_store(tmp_path / "writer", f"s3://{name}").put(key, data)
    async with faulty_proxy(s3.server().port, lambda *_: "pass") as front:
        store = behind(front, tmp_path, name)
        paths = await asyncio.gather(*(store.local_path(key) for _ in range(20)))
        assert len(set(paths)) == len(front.of("GET")) == 1
        assert paths[0].read_bytes() == data
        assert paths[0].stat().st_mode & 0o777 == 0o600


async def test_canceled_reader_does_not_block_others(tmp_path: Path) -> None:
    data, name = os.urandom(MIB), s3.server().new_bucket()
    key = blob_key(data)
    await buckets.content_store(tmp_path / "writer", f"s3://{name}").put(key, data)
    first = lambda number, _: "hang" if number == 0 else "pass"  # noqa: E731 - a rule in one line
    async with faulty_proxy(s3.server().port, first) as front:
        store = behind(front, tmp_path, name)
        impatient = asyncio.create_task(store.local_path(key))
        await wait_until(lambda: front.request_lines)
        patient = asyncio.create_task(store.local_path(key))
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await patient).read_bytes() == data
        with pytest.raises(asyncio.CancelledError):
            await impatient
    assert len(list_cache(tmp_path)) == 1


async def test_replaced_object_is_fetched_again(tmp_path: Path) -> None:
    store = buckets.s3_store(tmp_path / "store")
    for data in (b"first", b"other"):
        await store.put("key", data)
        assert (await store.local_path("key")).read_bytes() == data
    info = await store.stat("key")
    await store.put("key", b"third")
    two = await store.stat("key")
    assert info is not None
    assert two is not None
    assert info.tag != two.tag, "a version has a name even when both are of one second and one size"


# -- large files -----------------------------------------------------------------------------------


async def test_hundred_megabyte_file_takes_little_memory(tmp_path: Path) -> None:
    name = s3.server().new_bucket()
    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.contract.large_child", str(tmp_path), str(s3.server().port), name],
        env=settings.worker_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    size, same, risen = result.stdout.split()
    assert (size, same) == (str(100 * MIB), "True")
    assert int(risen) < 80, "MiB: four parts of five on their way, and what comes back in pieces"


# -- the cache -------------------------------------------------------------------------------------


def test_cache_stays_in_its_limit_and_evicts_least_recently_used(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", CacheLimits(10 * 1000, 0))
    for number in range(30):
        cache.write(f"{number:02}", bytes(1000))
        assert cache.find("00") is not None, "it is used all the time"
    names = sorted(path.name for path in list_cache(tmp_path))
    assert len(names) <= 10
    assert {"00", "28", "29"} <= set(names)
    assert "01" not in names


def test_only_recently_lent_files_may_exceed_the_cache_limit(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", CacheLimits(1000, 60))
    cache.write("lent", bytes(1000))
    assert cache.lend("lent") is not None
    for number in range(5):
        cache.write(f"other{number}", bytes(1000))
    assert [path.name for path in list_cache(tmp_path)] == ["lent"]
    later = BlobCache(tmp_path / "cache", CacheLimits(1000, 0))
    assert later.lend("lent") is not None
    later.write("other", bytes(1000))
    assert len(list_cache(tmp_path)) < 2, "its time is up"


def test_cache_stores_large_files_on_explicit_write_only(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache", CacheLimits(1000, 60))
    assert (cache.takes(250), cache.takes(251)) == (True, False)
    cache.write("large", bytes(1000))
    assert cache.lend("large") is not None


def test_cache_from_before_the_last_boot_is_discarded(tmp_path: Path) -> None:
    old = tmp_path / "cache" / "another-boot" / "name"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"torn")
    cache = BlobCache(tmp_path / "cache", CacheLimits(1000, 60))
    assert cache.find("name") is None
    cache.write("other", b"1")
    assert [path.name for path in list_cache(tmp_path)] == ["other"]


async def test_unusable_cache_folder_does_not_prevent_reads(tmp_path: Path) -> None:
    store = buckets.content_store(tmp_path)
    (tmp_path / "cache").write_text("a file where a folder should be")
    data = os.urandom(1000)
    await store.put(blob_key(data), data)
    assert await store.get(blob_key(data)) == data
    with pytest.raises(OSError, match="directory"):
        await store.local_path(blob_key(data))


# -- links and addresses ---------------------------------------------------------------------------


async def test_object_is_readable_by_its_signed_link_only(tmp_path: Path) -> None:
    name = s3.server().new_bucket()
    options = ObjectOptions(by_content=True, link_seconds=60)
    store = ObjectStore(
        buckets.bucket(f"s3://{name}/some/prefix"), buckets.cache(tmp_path / "cache"), options
    )
    await store.put("key", b"bytes", content_type="image/png")
    link = await store.link("key")
    assert link is not None
    assert s3.SECRET not in link
    parts = urlsplit(link)
    assert await asyncio.to_thread(fetched, f"{parts.path}?{parts.query}") == (200, "image/png", b"bytes")
    status, _kind, body = await asyncio.to_thread(fetched, parts.path)
    assert (status, b"bytes" in body) == (403, False)
    assert await buckets.content_store(tmp_path).link("key") is None


def fetched(target: str) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", s3.server().port, timeout=30)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type"), response.read()
    finally:
        connection.close()


async def test_google_and_azure_links_are_signed_offline(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "sixfold@example.com",
        "private_key_id": "1",
        "private_key": pem.decode(),
    }
    google = {"service_account_key": json.dumps(account)}
    azure = {"account_name": "account", "account_key": "c2VjcmV0"}
    stores = {
        "gs://bucket/a/b": (google, "storage.googleapis.com/bucket/a/b/key?"),
        "az://container/a/b": (azure, "account.blob.core.windows.net/container/a/b/key?"),
    }
    for url, (options, start) in stores.items():
        bucket = open_bucket(url, BucketAccess(options))
        store = ObjectStore(bucket, buckets.cache(tmp_path / "cache"), ObjectOptions(link_seconds=60))
        link = await store.link("key")
        assert link is not None
        assert link.startswith(f"https://{start}")
        assert "c2VjcmV0" not in link


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///bucket",
        "ftp://bucket",
        "bucket",
        "s3://key:secret@bucket",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://bucket?secret=1",
        "s3://bucket/" + "a" * 401,
        "az://container",
    ],
)
def test_invalid_bucket_url_is_refused_without_secrets(url: str) -> None:
    with pytest.raises(InvalidUrl) as excinfo:
        open_bucket(url, BucketAccess())
    assert "secret" not in str(excinfo.value)
    assert "\n" not in str(excinfo.value)


def test_unknown_bucket_option_is_refused() -> None:
    with pytest.raises(InvalidUrl, match="nonsense"):
        open_bucket("s3://bucket", BucketAccess({"nonsense": "1"}))
    with pytest.raises(InvalidUrl, match="more than 0"):
        open_bucket("s3://bucket", BucketAccess(seconds=0))
