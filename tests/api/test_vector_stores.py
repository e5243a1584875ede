"""Vector stores by the official client: files are chunked and searchable, on both databases."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.shared_params import ComparisonFilter

from sixfold import errors
from sixfold.core.account_data import deletion
from sixfold.core.database import Query, Transaction, many
from sixfold.core.vector_stores import attributes, chunking, search, stores
from tests.api.gateway import Gateway, running_gateway
from tests.fakes import documents as fakes

STATIC: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 20}}
BIRDS = (
    "The okapi eats leaves in the forest. " + "Weather report of the day. " * 60 + "The quagga is extinct."
)


async def upload(client: openai.AsyncOpenAI, name: str = "birds.txt", data: bytes = BIRDS.encode()) -> str:
    return (await client.files.create(file=(name, data), purpose="assistants")).id


async def wait_for_files(client: openai.AsyncOpenAI, store: str) -> Any:
    """Wait until no file of a store is in progress, and return the store."""
    async with asyncio.timeout(60):
        while True:
            result = await client.vector_stores.retrieve(store)
            if not result.file_counts.in_progress:
                return result
            await asyncio.sleep(0.01)


async def test_file_is_read_and_its_chunks_are_found(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    file = await upload(client)
    store = await client.vector_stores.create(
        name="Zoo", file_ids=[file], chunking_strategy=STATIC, metadata={"of": "ann"}
    )
    assert (store.name, store.metadata, store.file_counts.total) == ("Zoo", {"of": "ann"}, 1)
    store = await wait_for_files(client, store.id)
    assert (store.status, store.file_counts.completed) == ("completed", 1)
    assert store.usage_bytes > len(BIRDS)
    result = await client.vector_stores.search(store.id, query="Which animal is extinct?", max_num_results=2)
    assert "quagga" in result.data[0].content[0].text
    assert (result.data[0].file_id, result.data[0].filename) == (file, "birds.txt")
    assert 0 < result.data[0].score < 1
    row = await client.vector_stores.files.retrieve(file, vector_store_id=store.id)
    assert (row.status, row.last_error) == ("completed", None)
    assert row.chunking_strategy is not None
    assert row.chunking_strategy.model_dump() == STATIC
    chunks = [
        chunk.text async for chunk in client.vector_stores.files.content(file, vector_store_id=store.id)
    ]
    assert len(chunks) > 4
    assert max(map(len, filter(None, chunks))) <= 350
    assert await client.vector_stores.files.delete(file, vector_store_id=store.id)
    assert not (await client.vector_stores.search(store.id, query="quagga")).data
    deleted = await client.vector_stores.delete(store.id)
    assert deleted.deleted
    with pytest.raises(openai.NotFoundError, match="No vector store found"):
        await client.vector_stores.retrieve(store.id)


async def test_pdf_keeps_the_marks_of_its_pages(gateway: Gateway) -> None:
    client = gateway.openai()
    file = await upload(client, "a.pdf", fakes.pdf(["Rotors turn.", "The hangar burned."]))
    store = await client.vector_stores.create(file_ids=[file])
    await wait_for_files(client, store.id)
    result = await client.vector_stores.search(store.id, query="hangar")
    assert "[p. 2]\n\nThe hangar burned." in (result.data[0].content[0].text or "")


async def test_unreadable_file_does_not_affect_others(gateway: Gateway) -> None:
    client = gateway.openai()
    names = {"a.pdf": b"%PDF-1.7 no", "b.exe": b"MZ\0", "c.py": b"def okapi(): pass"}
    ids = [await upload(client, name, data) for name, data in names.items()]
    store = await client.vector_stores.create(file_ids=ids)
    store = await wait_for_files(client, store.id)
    assert (store.file_counts.failed, store.file_counts.completed) == (2, 1)
    failed = await client.vector_stores.files.list(store.id, filter="failed", order="asc")
    assert {row.last_error.code for row in failed.data if row.last_error} == {"invalid_file"}
    assert "damaged" in (failed.data[0].last_error.message if failed.data[0].last_error else "")
    with pytest.raises(openai.BadRequestError, match="The file is failed"):
        await client.vector_stores.files.content(ids[0], vector_store_id=store.id)
    # A file that is added again is read again.
    await client.vector_stores.files.create(store.id, file_id=ids[2], attributes={"year": 2026})
    store = await wait_for_files(client, store.id)
    assert (store.file_counts.total, store.file_counts.completed) == (3, 1)


async def test_attributes_filter_the_results(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    store = await client.vector_stores.create()
    files = [await upload(client, f"{year}.txt", b"The okapi of the year.") for year in (2024, 2025, 2026)]
    rows: Any = [
        {"file_id": file, "attributes": {"year": year, "open": year > 2024, "by": "ann"}}
        for file, year in zip(files, (2024, 2025, 2026), strict=True)
    ]
    batch = await client.vector_stores.file_batches.create(store.id, files=rows)
    await wait_for_files(client, store.id)
    batch = await client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id)
    assert (batch.status, batch.file_counts.completed) == ("completed", 3)

    async def years(keep: Any) -> set[str]:
        result = await client.vector_stores.search(store.id, query="okapi", filters=keep)
        return {row.filename.removesuffix(".txt") for row in result.data}

    newer: Any = {"type": "gte", "key": "year", "value": 2025}
    assert await years(newer) == {"2025", "2026"}
    assert await years({"type": "and", "filters": [newer, {"type": "ne", "key": "year", "value": 2026}]}) == {
        "2025"
    }
    assert await years({"type": "in", "key": "year", "value": [2024, 2026]}) == {"2024", "2026"}
    assert await years({"type": "nin", "key": "year", "value": [2024, 2026]}) == {"2025"}
    assert await years({"type": "eq", "key": "open", "value": True}) == {"2025", "2026"}
    assert await years({"type": "lt", "key": "by", "value": 3}) == set()
    assert await years({"type": "eq", "key": "none", "value": "x"}) == set()
    await client.vector_stores.files.update(files[0], vector_store_id=store.id, attributes={"year": 2030})
    assert await years(newer) == {"2024", "2025", "2026"}
    pages = await client.vector_stores.file_batches.list_files(
        batch.id, vector_store_id=store.id, limit=2, order="asc"
    )
    assert [row.id async for row in pages] == files


async def test_only_the_files_of_a_response_are_read(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, read = gateway.openai(), list[str]()
    ids = [await upload(client, f"{number}.txt", b"The okapi of the forest.") for number in range(9)]
    store = await client.vector_stores.create()
    batch = await client.vector_stores.file_batches.create(store.id, file_ids=ids, attributes={"open": True})
    await wait_for_files(client, store.id)
    file_of = stores.file_of

    def noting(row: Any) -> stores.VectorStoreFile:
        read.append(row["file_id"])
        return file_of(row)

    monkeypatch.setattr(stores, "file_of", noting)

    async def reads(action: Any) -> int:
        read.clear()
        await action
        return len(read)

    files, batches = client.vector_stores.files, client.vector_stores.file_batches
    assert await reads(files.list(store.id, limit=2)) == 3
    assert await reads(batches.list_files(batch.id, vector_store_id=store.id, limit=2)) == 3
    assert await reads(batches.retrieve(batch.id, vector_store_id=store.id)) == 0
    assert await reads(client.vector_stores.search(store.id, query="okapi", max_num_results=4)) == 4


@pytest.mark.parametrize("ascending", [True, False])
async def test_all_pages_of_files_are_complete(any_database_gateway: Gateway, ascending: bool) -> None:
    client = any_database_gateway.openai()
    ids = [await upload(client, f"{number}.txt", b"The okapi.") for number in range(5)]
    store = await client.vector_stores.create(file_ids=ids)
    await wait_for_files(client, store.id)
    order: Any = "asc" if ascending else "desc"
    files = client.vector_stores.files
    item_ids = [file.id async for file in files.list(store.id, limit=2, order=order)]
    assert item_ids == sorted(ids, reverse=not ascending)
    # An unknown file begins the list again.
    page = await files.list(store.id, limit=2, order=order, after="file_unknown")
    assert [file.id for file in page.data] == item_ids[:2]
    assert not [file async for file in files.list(store.id, filter="failed")]


async def test_stores_are_paged_and_changed(gateway: Gateway) -> None:
    client = gateway.openai()
    created = [(await client.vector_stores.create(name=f"s{number}")).id for number in range(3)]
    # The order of objects that are created in the same millisecond is undefined.
    results = sorted(created)
    assert [store.id async for store in client.vector_stores.list(limit=2, order="asc")] == results
    assert [store.id async for store in client.vector_stores.list(limit=2)] == results[::-1]
    changed_store = await client.vector_stores.update(
        results[0], name="new", expires_after={"anchor": "last_active_at", "days": 2}
    )
    assert (changed_store.name, changed_store.expires_after.days if changed_store.expires_after else 0) == (
        "new",
        2,
    )
    assert changed_store.expires_at == (changed_store.last_active_at or 0) + 2 * 86_400


async def test_unused_store_expires(gateway: Gateway) -> None:
    client = gateway.openai()
    store = await client.vector_stores.create(
        file_ids=[await upload(client)], expires_after={"anchor": "last_active_at", "days": 1}
    )
    await wait_for_files(client, store.id)
    application = gateway.app.server
    assert (await client.vector_stores.retrieve(store.id)).status == "completed"
    await application.database.write(_forget_use(store.id))
    assert (await client.vector_stores.retrieve(store.id)).status == "expired"
    await application.vector_stores.stores.sweep()
    assert (await client.vector_stores.retrieve(store.id)).status == "expired"
    with pytest.raises(openai.BadRequestError, match="has expired"):
        await client.vector_stores.search(store.id, query="okapi")
    assert (await client.vector_stores.retrieve(store.id)).file_counts.total == 0


def _forget_use(store: str) -> Transaction[None]:
    yield Query("vector_store_active", {"id": store, "at": 0})


def _lose(files: Sequence[str]) -> Transaction[None]:
    for file in files:
        yield Query("file_drop", {"file_id": file})


async def test_sweep_removes_lost_files_page_by_page(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, application = gateway.openai(), gateway.app.server
    files = [await upload(client, f"{number}.txt") for number in range(5)]
    result = await client.vector_stores.create(file_ids=files)
    await wait_for_files(client, result.id)
    await application.database.write(_lose([files[1], files[4]]))
    monkeypatch.setattr(stores, "SWEPT_FILES", 2)
    left: list[int] = []
    for _ in range(3):
        await application.vector_stores.stores.sweep()
        left.append((await client.vector_stores.retrieve(result.id)).file_counts.total)
    assert left == [4, 4, 3]


async def test_deleted_file_leaves_its_stores(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    file = await upload(client)
    store = await client.vector_stores.create(file_ids=[file])
    await wait_for_files(client, store.id)
    assert (await client.vector_stores.search(store.id, query="quagga")).data
    await client.files.delete(file)
    assert not (await client.vector_stores.search(store.id, query="quagga")).data
    assert (await client.vector_stores.retrieve(store.id)).file_counts.total == 0


async def test_stores_are_hidden_from_other_accounts_and_keys(gateway: Gateway) -> None:
    client, other = gateway.openai(), gateway.openai(key=gateway.app.other)
    file = await upload(client)
    store = await client.vector_stores.create(file_ids=[file])
    with pytest.raises(openai.NotFoundError, match="No vector store found"):
        await other.vector_stores.search(store.id, query="okapi")
    theirs = await other.vector_stores.create()
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        await other.vector_stores.files.create(theirs.id, file_id=file)
    assert [each.id async for each in other.vector_stores.list()] == [theirs.id]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"name": 3}, "name"),
        ("", {"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after.anchor"),
        ("", {"expires_after": {"anchor": "last_active_at", "days": 0}}, "days"),
        ("", {"metadata": {"a": []}}, "metadata"),
        ("", {"chunking_strategy": {"type": "x"}}, "chunking_strategy.type"),
        ("/files", {"file_id": 3}, "file_id"),
        ("/files", {"file_id": "file_x", "attributes": {str(n): n for n in range(17)}}, "attributes"),
        ("/file_batches", {}, "file_ids"),
        ("/search", {"query": ""}, "query"),
        ("/search", {"query": "x", "max_num_results": 51}, "max_num_results"),
        ("/search", {"query": "x", "filters": {"type": "x"}}, "filters"),
        ("/search", {"query": "x", "filters": {"type": "and", "filters": []}}, "filters"),
        (
            "/search",
            {"query": "x", "ranking_options": {"score_threshold": 2}},
            "ranking_options.score_threshold",
        ),
    ],
)
async def test_errors_name_the_invalid_parameter(
    gateway: Gateway, path: str, body: dict[str, Any], param: str
) -> None:
    store = await gateway.openai().vector_stores.create()
    where = f"/v1/vector_stores/{store.id}{path}" if path else "/v1/vector_stores"
    response = await gateway.app.client.post(where, json=body, headers=gateway.headers)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text


def test_filters_have_limits() -> None:
    deep: Any = {"type": "eq", "key": "a", "value": 1}
    for _ in range(6):
        deep = {"type": "and", "filters": [deep]}
    wide = {"type": "or", "filters": [{"type": "eq", "key": "a", "value": 1}] * 200}
    for each in (deep, wide):
        with pytest.raises(errors.InvalidInput):
            attributes.parse_filter(each)


async def test_quotas_refuse_and_change_nothing(tmp_path: Path) -> None:
    settings = {"vector_stores_per_account": 1, "vector_store_bytes_per_account": 2_000}
    async with running_gateway(tmp_path, settings) as gateway:
        client = gateway.openai()
        store = await client.vector_stores.create()
        with pytest.raises(openai.APIStatusError, match="at most 1 vector stores"):
            await client.vector_stores.create()
        large = await upload(client, data=b"words " * 1_000)
        await client.vector_stores.files.create(store.id, file_id=large)
        result = await wait_for_files(client, store.id)
        assert (result.file_counts.failed, result.usage_bytes) == (1, 0)
        row = await client.vector_stores.files.retrieve(large, vector_store_id=store.id)
        assert "exceeds the limit of 2,000" in (row.last_error.message if row.last_error else "")


async def test_export_and_erasure_include_the_stores(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    client, application, account = gateway.openai(), gateway.app.server, gateway.app.account.id
    store = await client.vector_stores.create(name="Zoo", file_ids=[await upload(client)])
    await wait_for_files(client, store.id)
    exported = await gateway.app.client.get("/api/account/export", headers=gateway.headers)
    with zipfile.ZipFile(io.BytesIO(exported.content)) as archive:
        rows = [json.loads(line) for line in archive.read("vector-stores.jsonl").splitlines()]
        files = [json.loads(line) for line in archive.read("vector-store-files.jsonl").splitlines()]
    assert [row["name"] for row in rows] == ["Zoo"]
    assert files[0]["filename"] == "birds.txt"

    def erase() -> Transaction[None]:
        for name in deletion.ERASURES:
            if "vector_store" in name:
                yield Query(name, {"account_id": account})

    await application.database.write(erase())
    left = await application.database.read(
        many("vector_store_chunks", id=store.id, file_id="", position=-1, limit=9)
    )
    assert not left


def test_chunks_overlap_and_cover_the_text() -> None:
    text = " ".join(f"word{number}" for number in range(2_000))
    chunks = list(chunking.split(text, 100, 50))
    assert max(map(len, chunks)) <= 350
    assert set(text.split()) == {word for chunk in chunks for word in chunk.split()}
    assert sum(map(len, chunks)) > 1.5 * len(text)
    plain = list(chunking.split(text, 100, 0))
    assert sum(len(chunk.split()) for chunk in plain) == 2_000
    assert next(chunking.split("x" * 1_000, 100, 50)) == "x" * 350


async def test_text_beyond_the_index_memory_limit_is_found(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_INDEX_BYTES", 2**18)
    client = gateway.openai()
    words = [
        f"{at:x}".translate(str.maketrans("0123456789", "ghijklmnop")) for at in range(4**7, 4**7 + 9_000)
    ]
    file = await upload(client, "words.txt", " ".join(words).encode())
    other = await upload(client, "other.txt", words[-1].encode())
    store = await client.vector_stores.create(file_ids=[file, other], chunking_strategy=STATIC)
    assert (await wait_for_files(client, store.id)).file_counts.completed == 2
    await client.vector_stores.files.update(file, vector_store_id=store.id, attributes={"part": 1})
    of_part_1: ComparisonFilter = {"type": "eq", "key": "part", "value": 1}
    for word in (words[0], words[4_500], words[-1]):
        for filters, expected in (
            (None, {file, other} if word == words[-1] else {file}),
            (of_part_1, {file}),
        ):
            hits = await client.vector_stores.search(store.id, query=word, filters=filters or openai.omit)
            assert {hit.file_id for hit in hits.data if word in hit.content[0].text.split()} == expected
    (slot,) = gateway.app.server.vector_stores.search._indexes.values()
    assert slot.index is not None
    # The last chunk may exceed the limit.
    assert slot.index.size < 2 * 2**18


async def test_indexes_of_stores_share_a_memory_limit(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = gateway.openai()
    file = await upload(client, "words.txt", b"ribbed canopies")
    stores = [await client.vector_stores.create(file_ids=[file]) for _ in range(3)]
    for store in stores:
        await wait_for_files(client, store.id)
        assert (await client.vector_stores.search(store.id, query="canopies")).data
    indexes = gateway.app.server.vector_stores.search._indexes
    assert list(indexes) == [store.id for store in stores]
    monkeypatch.setattr(search, "_MAX_BYTES", 1)
    assert (await client.vector_stores.search(stores[1].id, query="canopies")).data
    assert list(indexes) == [stores[1].id]
    assert (await client.vector_stores.search(stores[0].id, query="canopies")).data
