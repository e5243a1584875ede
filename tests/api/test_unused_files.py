"""Files of rejected requests and unsuccessful runs, and deleted files, are limited and removed in a day."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from sixfold.core.accounts import accounts
from sixfold.core.clock import DAY_US
from sixfold.core.media.media import MediaService
from sixfold.core.media.ports import MediaLimits
from sixfold.store.file_store import FileStore
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_quotas import png
from tests.harness import databases, image_files

SIZE = 100_000
LIMIT = 300_000
RequestFunction = Callable[[AppFixture], Awaitable[httpx.Response]]


async def run_without_credit(app: AppFixture) -> httpx.Response:
    """A run that costs more than the account has."""
    image = image_files.data_uri(png())
    body = {"model": "upscaler", "input": {"image": image}}
    return await app.client.post("/api/containers/run", json=body, headers=bearer(app.poor))


async def deleted_file(app: AppFixture) -> httpx.Response:
    files = {"file": ("a.bin", os.urandom(SIZE))}
    headers = bearer(app.poor)
    response = await app.client.post(
        "/v1/files", data={"purpose": "assistants"}, files=files, headers=headers
    )
    if response.status_code == 200:
        await app.client.delete(f"/v1/files/{response.json()['id']}", headers=headers)
    return response


async def part_beyond_its_upload(app: AppFixture) -> httpx.Response:
    headers = bearer(app.poor)
    details = {"filename": "a", "purpose": "assistants", "bytes": 9, "mime_type": "text/plain"}
    upload = await app.client.post("/v1/uploads", json=details, headers=headers)
    path = f"/v1/uploads/{upload.json()['id']}/parts"
    return await app.client.post(path, files={"data": ("a", os.urandom(SIZE))}, headers=headers)


async def post_of_the_wrong_type(app: AppFixture) -> httpx.Response:
    files = {"media": ("a.bin", os.urandom(SIZE))}
    return await app.client.post(
        "/api/create-post", data={"text": "a"}, files=files, headers=bearer(app.poor)
    )


async def upload_beyond_the_quota(app: AppFixture) -> httpx.Response:
    """Send an upload to a server with a small limit."""
    return await app.client.post("/api/uploads", content=os.urandom(SIZE), headers=bearer(app.poor))


async def failed_run(app: AppFixture) -> httpx.Response:
    """A run that is not charged."""
    inputs = {"source_image_url": image_files.data_uri(png()), "style_prompt": "FAIL"}
    body = {"model": "style-transfer", "input": inputs}
    return await app.client.post("/api/containers/run", json=body, headers=app.bearer)


async def canceled_run(app: AppFixture) -> httpx.Response:
    inputs = {"source_image_url": image_files.data_uri(png()), "style_prompt": "SLOW"}
    body = {"model": "style-transfer", "input": inputs, "wait": 0}
    response = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
    if response.status_code == 202:
        await app.client.post(response.json()["urls"]["cancel"], headers=app.bearer)
        prediction = await app.predictions.get_any(response.json()["id"])
        await app.predictions.wait(prediction, 60)
    return response


@pytest.mark.parametrize(
    "way",
    [
        run_without_credit,
        failed_run,
        canceled_run,
        deleted_file,
        part_beyond_its_upload,
        post_of_the_wrong_type,
        upload_beyond_the_quota,
    ],
)
async def test_refused_and_deleted_bytes_are_limited(tmp_path: Path, way: RequestFunction) -> None:
    limits: dict[str, Any] = {"upload_quota_bytes": LIMIT, "file_bytes_per_account": LIMIT}
    async with running_app(tmp_path, **limits) as app:
        blobs = app.server.media.blobs
        before = sum([each.size async for each in blobs.list("blobs/")])
        statuses = [(await way(app)).status_code for _ in range(12)]
        added = sum([each.size async for each in blobs.list("blobs/")]) - before
    assert SIZE <= added <= 2 * LIMIT + 2 * SIZE
    assert statuses[-1] in (400, 413)


async def test_limit_does_not_show_files_of_other_accounts(either: Path) -> None:
    """Deleted files count whether or not another account has stored the same bytes."""

    async def deleted_until_refused(app: AppFixture, contents: list[bytes]) -> int:
        headers = bearer(app.poor)
        for number, data in enumerate(contents):
            form: dict[str, Any] = {"data": {"purpose": "assistants"}, "files": {"file": ("a.bin", data)}}
            response = await app.client.post("/v1/files", headers=headers, **form)
            if response.status_code != 200:
                return number
            await app.client.delete(f"/v1/files/{response.json()['id']}", headers=headers)
        return len(contents)

    async with running_app(either, upload_quota_bytes=LIMIT, file_bytes_per_account=LIMIT) as app:
        contents = [os.urandom(SIZE) for _ in range(6)]
        for data in contents[:2]:
            form: dict[str, Any] = {"data": {"purpose": "assistants"}, "files": {"file": ("a.bin", data)}}
            stored = await app.client.post("/v1/files", headers=app.bearer, **form)
            assert stored.status_code == 200
        assert await deleted_until_refused(app, contents) == LIMIT // SIZE


async def test_unreferenced_files_are_deleted_in_a_day(either: Path) -> None:
    at = [1_800_000_000_000_000]
    async with databases.running_database(None, either, lambda: at[0]) as database:
        account = await database.write(accounts.create("ada@example.com"))
        store = FileStore(either / "store")
        limits = MediaLimits(SIZE, SIZE, 1, 10 * SIZE, DAY_US)
        media = MediaService(database, store, cast("Any", None), cast("Any", None), limits)
        refused_source = await media.store_unnamed(b"refused", "image/png", account.id)
        named = await media.store_unnamed(b"named", "image/png", account.id)
        await database.write(media.name_blob(account.id, named))
        for source in (refused_source, named):
            os.utime(await store.local_path(source.blob), (1, 1))
        await media.sweep()
        assert await store.stat(refused_source.blob) is not None
        at[0] += DAY_US + 1
        await media.sweep()
        assert await store.stat(refused_source.blob) is None
        assert await store.stat(named.blob) is not None
        store.close()
