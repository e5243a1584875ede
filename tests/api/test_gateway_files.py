"""Files in the formats of OpenAI and Anthropic, by the official clients: stored, listed, read, deleted."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from sixfold.core.account_data import deletion
from sixfold.core.accounts import keys
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.rights import Rights
from sixfold.core.database import Query, Transaction
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway

LINES = b'{"custom_id": "a"}\n' * 1000
VERSION = {"anthropic-version": "2023-06-01"}


async def test_openai_client_stores_reads_and_deletes_a_file(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    result = await client.files.create(file=("in.jsonl", LINES), purpose="batch")
    assert (result.object, result.bytes, result.filename, result.purpose) == (
        "file",
        len(LINES),
        "in.jsonl",
        "batch",
    )
    assert (await client.files.retrieve(result.id)).id == result.id
    assert (await client.files.content(result.id)).content == LINES
    deleted = await client.files.delete(result.id)
    assert (deleted.id, deleted.deleted) == (result.id, True)
    with pytest.raises(openai.NotFoundError):
        await client.files.content(result.id)


async def test_a_list_of_files_is_paged_and_filtered(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    results = [
        (await client.files.create(file=(f"{n}.txt", b"x"), purpose="batch" if n % 2 else "user_data")).id
        for n in range(5)
    ]
    assert [each.id async for each in client.files.list(limit=2)] == results[::-1]
    assert [each.id async for each in client.files.list(order="asc", limit=2)] == results
    assert [each.id async for each in client.files.list(purpose="batch")] == [results[3], results[1]]
    page = await client.files.list(limit=2, after=results[3])
    assert ([each.id for each in page.data], page.has_more) == ([results[2], results[1]], True)


async def test_anthropic_client_sees_the_same_files(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.anthropic()
    results = [await client.beta.files.upload(file=(f"{n}.txt", b"words", "text/plain")) for n in range(3)]
    assert (results[0].type, results[0].mime_type, results[0].size_bytes) == ("file", "text/plain", 5)
    ids = [each.id async for each in client.beta.files.list(limit=2)]
    assert ids == [each.id for each in reversed(results)]
    some = await client.beta.files.list(ids=[results[1].id, "file_none", results[0].id])
    assert ([each.id for each in some.data], some.next_page) == ([results[1].id, results[0].id], None)
    query = {"before_id": results[0].id, "limit": "1"}
    headers = {**any_database_gateway.headers, **VERSION}
    response = await any_database_gateway.app.client.get("/v1/files", params=query, headers=headers)
    assert [each["id"] for each in response.json()["data"]] == [results[1].id]
    assert (await client.beta.files.retrieve_metadata(results[0].id)).filename == "0.txt"
    assert await (await client.beta.files.download(results[0].id)).read() == b"words"
    assert (await client.beta.files.delete(results[0].id)).type == "file_deleted"
    assert (await any_database_gateway.openai().files.retrieve(results[1].id)).purpose == "user_data"


async def test_anthropic_upload_expires_and_loses_its_folder(gateway: Gateway) -> None:
    client = gateway.anthropic()
    result = await client.beta.files.upload(file=("a/b.txt", b"x"), expires_in_seconds=3600)
    assert result.expires_at is not None
    assert ((result.expires_at - result.created_at).total_seconds(), result.filename) == (3600, "b.txt")
    with pytest.raises(
        anthropic.BadRequestError, match="expires_in_seconds must be an integer from 3600 to 7776000"
    ):
        await client.beta.files.upload(file=("b.txt", b"x"), expires_in_seconds=3599)
    with pytest.raises(anthropic.BadRequestError, match="next_page"):
        await client.beta.files.list(page="2")


async def test_anthropic_clients_get_anthropic_errors(gateway: Gateway) -> None:
    client = gateway.anthropic()
    with pytest.raises(anthropic.NotFoundError) as excinfo:
        await client.beta.files.retrieve_metadata("file_none")
    body: Any = excinfo.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    headers = {**gateway.headers, **VERSION}
    for method, path, status in (("GET", "/v1/files/a/b/c", 404), ("PUT", "/v1/files", 405)):
        response = await gateway.app.client.request(method, path, headers=headers)
        assert (response.status_code, response.json()["type"]) == (status, "error")
        plain = await gateway.app.client.request(method, path, headers=gateway.headers)
        assert (plain.status_code, "type" in plain.json()) == (status, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "purpose"),
        ({"purpose": "batch_output"}, "purpose"),
        ({"purpose": "batch", "expires_after[anchor]": "now"}, "expires_after.anchor"),
        (
            {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3599"},
            "expires_after.seconds",
        ),
        (
            {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "9" * 99},
            "expires_after.seconds",
        ),
    ],
)
async def test_errors_name_the_invalid_parameter(
    gateway: Gateway, fields: dict[str, str], param: str
) -> None:
    response = await gateway.app.client.post(
        "/v1/files", files={"file": ("a", b"x")}, data=fields, headers=gateway.headers
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    assert await stored_files(gateway) == []


@pytest.mark.parametrize("name", ["", "a" * 256, "a\tb"])
async def test_invalid_file_name_is_refused(gateway: Gateway, name: str) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.encode()
        + b'"\r\n\r\nx\r\n--x--\r\n'
    )
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    response = await gateway.app.client.post("/v1/files", content=body, headers={**gateway.headers, **kind})
    assert response.status_code == 400
    assert "file name" in response.json()["error"]["message"]


async def stored_files(gateway: Gateway) -> list[Any]:
    """Return the files of the first account."""
    return await gateway.app.exported("export_files")


async def test_quotas_of_files_refuse_and_change_nothing(tmp_path: Path) -> None:
    settings = {"files_per_account": 2, "file_bytes_per_account": 100}
    async with running_gateway(tmp_path, settings) as gateway:
        client = gateway.openai()
        first = await client.files.create(file=("a", b"x" * 60), purpose="batch")
        with pytest.raises(openai.APIStatusError) as large_error:
            await client.files.create(file=("b", b"y" * 41), purpose="batch")
        assert (large_error.value.status_code, large_error.value.code) == (413, "too_large")
        with pytest.raises(openai.APIStatusError):
            await client.uploads.create(bytes=41, filename="c", mime_type="text/plain", purpose="batch")
        await client.uploads.create(bytes=40, filename="c", mime_type="text/plain", purpose="batch")
        with pytest.raises(openai.APIStatusError) as many_files_error:
            await client.files.create(file=("d", b"z"), purpose="batch")
        assert "2 files" in str(many_files_error.value)
        await client.files.delete(first.id)
        await client.files.create(file=("e", b"y" * 41), purpose="batch")
        assert len(await stored_files(gateway)) == 1


async def test_an_expired_file_is_gone(gateway: Gateway) -> None:
    client = gateway.openai()
    result = await client.files.create(
        file=("a", b"x"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert result.expires_at == result.created_at + 3600
    await expire(gateway, result.id)
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(result.id)
    await gateway.app.server.files.sweep()
    assert await stored_files(gateway) == []


async def expire(gateway: Gateway, file_id: str) -> None:
    path = gateway.app.settings.data_dir / "sixfold.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE account_file SET expires_at = 1 WHERE id = ?", (file_id,))


async def test_parts_become_one_file(any_database_gateway: Gateway) -> None:
    client = any_database_gateway.openai()
    upload = await client.uploads.create(bytes=6, filename="a.txt", mime_type="text/plain", purpose="batch")
    parts = [await client.uploads.parts.create(upload.id, data=data) for data in (b"cde", b"ab", b"f")]
    order = [parts[1].id, parts[0].id, parts[2].id]
    digest = hashlib.md5(b"abcdef", usedforsecurity=False).hexdigest()
    with pytest.raises(openai.BadRequestError, match="md5"):
        await client.uploads.complete(upload.id, part_ids=order, md5="0" * 32)
    with pytest.raises(openai.BadRequestError, match="must be 6 bytes in total"):
        await client.uploads.complete(upload.id, part_ids=order[:2])
    with pytest.raises(openai.BadRequestError, match="must be 6 bytes in total"):
        await client.uploads.parts.create(upload.id, data=b"g")
    final_upload = await client.uploads.complete(upload.id, part_ids=order, md5=digest)
    assert final_upload.status == "completed"
    assert final_upload.file is not None
    assert (await client.files.content(final_upload.file.id)).content == b"abcdef"
    with pytest.raises(openai.BadRequestError, match="completed"):
        await client.uploads.cancel(upload.id)


async def test_a_cancelled_upload_takes_no_parts(gateway: Gateway) -> None:
    client = gateway.openai()
    upload = await client.uploads.create(bytes=6, filename="a.txt", mime_type="text/plain", purpose="batch")
    assert (await client.uploads.cancel(upload.id)).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="cancelled"):
        await client.uploads.parts.create(upload.id, data=b"abcdef")
    with pytest.raises(openai.NotFoundError):
        await gateway.openai(gateway.app.other).uploads.cancel(upload.id)


async def test_file_of_another_account_is_not_found(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    result = await gateway.openai().files.create(file=("a", b"secret"), purpose="batch")
    runner = keys.create(gateway.app.account.id, KeyLimits(), granted=Rights.RUN)
    run_only = (await gateway.app.database.write(runner)).api_key
    for key in (gateway.app.other, run_only):
        client = gateway.openai(key)
        assert [each.id async for each in client.files.list()] == []
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError):
                await call(result.id)
    own = await gateway.openai(run_only).files.create(file=("b", b"own"), purpose="batch")
    assert {each.id async for each in gateway.openai().files.list()} == {result.id, own.id}


async def test_a_repeated_upload_stores_one_file(gateway: Gateway) -> None:
    client = gateway.openai()
    answers = [
        await client.files.create(
            file=("a", b"x"), purpose="batch", extra_headers={"Idempotency-Key": "once"}
        )
        for _ in range(2)
    ]
    assert answers[0].id == answers[1].id
    assert len(await stored_files(gateway)) == 1


async def test_files_are_exported_and_erased(any_database_gateway: Gateway) -> None:
    gateway = any_database_gateway
    client = gateway.openai()
    output = await client.files.create(file=("mine.txt", b"my words"), purpose="user_data")
    upload = await client.uploads.create(bytes=6, filename="p", mime_type="text/plain", purpose="batch")
    await client.uploads.parts.create(upload.id, data=b"abc")
    response = await gateway.app.client.get("/api/account/export", headers=gateway.headers)
    with zipfile.ZipFile(io.BytesIO(response.content)) as result:
        (row,) = [json.loads(line) for line in result.read("files.jsonl").splitlines()]
        assert (row["id"], row["filename"]) == (output.id, "mine.txt")
        assert result.read(f"media/{row['media']}") == b"my words"
    database, account_id = gateway.app.database, gateway.app.account.id

    def erase() -> Transaction[None]:
        for name in ("erase_files", "erase_file_parts", "erase_file_uploads", "erase_media"):
            assert name in deletion.ERASURES
            yield Query(name, {"account_id": account_id})

    await database.write(erase())
    assert await stored_files(gateway) == []
    assert [each.id async for each in client.files.list()] == []


async def test_content_is_served_in_ranges_as_an_attachment(gateway: Gateway) -> None:
    page = b"<script>alert(1)</script>"
    result = await gateway.openai().files.create(file=("a.html", page), purpose="user_data")
    path = f"/v1/files/{result.id}/content"
    part = await gateway.app.client.get(path, headers={**gateway.headers, "Range": "bytes=1-6"})
    assert (part.status_code, part.content) == (206, b"script")
    assert part.headers["content-disposition"] == "attachment; filename*=UTF-8''a.html"
    assert part.headers["content-type"] == "application/octet-stream"
    assert part.headers["cache-control"].startswith("private")
    assert (await gateway.app.client.get(path, headers=bearer(gateway.app.other))).status_code == 404
