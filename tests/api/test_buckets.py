"""The server on an object store: results, uploads, save paths, links, and outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from sixfold.app import storage
from sixfold.core.database import one
from sixfold.settings import InvalidSetting, Settings
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.contract.test_blobstore_objects import fetched
from tests.fakes.faulty_proxy import FaultyProxy, faulty_proxy
from tests.harness import s3

pytestmark = s3.NEEDED
FAILED = "Image generation failed. Please try again."
SMALL = {"prompt": "a fox", "width": "80", "height": "64", "save_path": "a/fox.png"}


@asynccontextmanager
async def on_s3(
    folder: Path, front: FaultyProxy | None = None, **changes: object
) -> AsyncIterator[AppFixture]:
    """A server whose results and uploads lie in one new bucket."""
    options = s3.server().options | ({"endpoint": front.endpoint} if front is not None else {})
    name = s3.server().new_bucket()
    inputs = {
        "blob_url": f"s3://{name}/results",
        "upload_url": f"s3://{name}/uploads",
        "tables": {"buckets": {"s3": options}},
        "blob_seconds": 0.5,
        **changes,
    }
    async with running_app(folder, **inputs) as result:
        yield result


async def create_image(app: AppFixture, prompt: str = "a fox") -> str:
    response = await app.client.post("/api/ra1", json={"api_key": app.key, "prompt": prompt})
    assert response.status_code == 200, response.text
    return str(response.json()["image_url"])


async def listing(app: AppFixture) -> list[str]:
    return [info.key async for info in app.server.uploads.list()]


async def clear_cache(folder: Path) -> None:
    """Clear the server's cache, as on another machine."""
    for path in (folder / "cache").rglob("*"):
        if path.is_file():
            await asyncio.to_thread(path.unlink)


@pytest.mark.parametrize("cold", [False, True])
async def test_a_result_is_served_with_ranges_and_its_tag(tmp_path: Path, cold: bool) -> None:
    async with on_s3(tmp_path) as app:
        url = await create_image(app)
        if cold:
            await clear_cache(tmp_path)
        full_response = await app.client.get(url)
        assert (full_response.status_code, full_response.headers["Content-Type"]) == (200, "image/png")
        size = len(full_response.content)
        assert full_response.headers["Content-Length"] == str(size)
        part = await app.client.get(url, headers={"Range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, full_response.content[10:20])
        assert part.headers["Content-Range"] == f"bytes 10-19/{size}"
        tail = await app.client.get(url, headers={"Range": "bytes=-5"})
        assert tail.content == full_response.content[-5:]
        beyond = await app.client.get(url, headers={"Range": f"bytes={size}-"})
        assert beyond.status_code == 416
        known = await app.client.get(url, headers={"If-None-Match": full_response.headers["ETag"]})
        assert (known.status_code, known.content) == (304, b"")
        head = await app.client.head(url)
        assert (head.status_code, head.headers["Content-Length"]) == (200, str(size))
        assert head.headers["Content-Security-Policy"].endswith("sandbox")


async def test_result_without_its_blob_is_404(tmp_path: Path) -> None:
    async with on_s3(tmp_path) as app:
        url = await create_image(app)
        result = await app.server.media.find(url.rpartition("/")[2])
        assert await app.server.blobs.delete(result.blob)
        for call in (app.client.get, app.client.head):
            assert (await call(url)).status_code == 404


async def test_an_upload_becomes_an_input(tmp_path: Path) -> None:
    image = tmp_path / "picture.png"
    Image.new("RGB", (40, 30), "teal").save(image)
    async with on_s3(tmp_path / "data") as app:
        sent = await app.client.post(
            "/api/uploads", content=image.read_bytes(), headers={**app.bearer, "Content-Type": "image/png"}
        )
        assert sent.status_code == 201
        await clear_cache(tmp_path / "data")
        body = {"source_image_url": sent.json()["url"], "style_prompt": "oil painting"}
        styled = await app.client.post("/api/style-transfer", json=body, headers=app.bearer)
        assert styled.status_code == 200, styled.text
        assert list((tmp_path / "data" / "tmp").iterdir()) == []


# -- callers' paths --------------------------------------------------------------------------------


async def test_image_with_save_path_is_stored_in_the_private_bucket(tmp_path: Path) -> None:
    async with on_s3(tmp_path) as app:
        first = await app.client.get("/create_and_upload_image", params=SMALL, headers=app.bearer)
        assert first.status_code == 200, first.text
        url = first.json()["path"]
        assert await listing(app) == [f"{app.account.id}/a/fox.png"]
        response = await app.client.get(url)
        assert (response.status_code, response.headers["Content-Type"]) == (200, "image/png")
        assert len(response.content) == first.json()["bytes"]
        second_query = {**SMALL, "prompt": "another fox"}
        await app.client.get("/create_and_upload_image", params=second_query, headers=app.bearer)
        replaced = await app.client.get(url, headers={"If-None-Match": response.headers["ETag"]})
        assert (replaced.status_code, replaced.content != response.content) == (200, True)
        other = bearer(app.other)
        await app.client.get("/create_and_upload_image", params=SMALL, headers=other)
        assert len(await listing(app)) == 2, "each account has its own prefix"
        name = app.settings.upload_url.removeprefix("s3://").partition("/")[0]
        target = f"/{name}/uploads/{app.account.id}/a/fox.png"
        assert (await asyncio.to_thread(fetched, target))[0] == 403


@pytest.mark.parametrize(
    ("path", "message"), [("a/fox.png/b", "is an existing file"), ("a", "an existing folder")]
)
async def test_save_path_that_conflicts_with_file_or_folder_is_409(
    tmp_path: Path, path: str, message: str
) -> None:
    async with on_s3(tmp_path) as app:
        assert (await app.client.get("/create_and_upload_image", params=SMALL)).status_code == 200
        response = await app.client.get("/create_and_upload_image", params={**SMALL, "save_path": path})
        assert response.status_code == 409
        assert message in response.text


# -- links -----------------------------------------------------------------------------------------


async def test_images_redirect_to_the_bucket_when_configured(tmp_path: Path) -> None:
    async with on_s3(tmp_path, blob_link_seconds=120) as app:
        url = await create_image(app)
        sent = await app.client.get(url)
        assert (sent.status_code, sent.headers["Cache-Control"]) == (307, "private, max-age=60")
        parts = urlsplit(sent.headers["Location"])
        status, kind, data = await asyncio.to_thread(fetched, f"{parts.path}?{parts.query}")
        assert (status, kind, data[:4]) == (200, "image/png", b"\x89PNG")
        assert (await app.client.head(url)).status_code == 200
        vector = await app.client.post(
            "/api/uploads", content=b"<svg xmlns='http://www.w3.org/2000/svg'/>", headers=app.bearer
        )
        response = await app.client.get(vector.json()["url"])
        assert (response.status_code, response.headers["Content-Disposition"]) == (200, "attachment")


async def test_images_are_served_without_redirect_by_default(tmp_path: Path) -> None:
    async with on_s3(tmp_path) as app:
        assert (await app.client.get(await create_image(app))).status_code == 200


# -- outages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["500", "403", "hang", "drop"])
async def test_storage_outage_is_reported_and_free(tmp_path: Path, fault: str) -> None:
    async with faulty_proxy(s3.server().port, lambda *_: fault) as front, on_s3(tmp_path, front) as app:
        body = {"api_key": app.key, "prompt": "a fox"}
        painted = await app.client.post("/api/ra1", json=body)
        assert (painted.status_code, painted.json()["error"]) == (502, FAILED)
        if fault == "403":
            assert front.methods() == ["PUT"], "it is not run again for this"
        upload = await app.client.post("/api/uploads", content=b"some text", headers=app.bearer)
        assert (upload.status_code, upload.json()["code"]) == (503, "storage_unavailable")
        placed = await app.client.get("/create_and_upload_image", params=SMALL, headers=app.bearer)
        assert placed.status_code in {502, 503}
        assert await app.balance() == ("5.00", "0.00")
        assert await app.faults() == ()
        assert await names(app) == 0
        assert left_behind(tmp_path) == []


async def test_result_is_stored_when_the_store_responds_again(tmp_path: Path) -> None:
    """The client of the store gives up after six attempts."""
    async with (
        faulty_proxy(s3.server().port, lambda number, _: "drop" if number < 8 else "pass") as front,
        on_s3(tmp_path, front, blob_seconds=20) as app,
    ):
        assert (await app.client.get(await create_image(app))).status_code == 200
        assert len(front.of("PUT")) > 8
        assert await app.balance() == ("4.96", "0.00")


def left_behind(folder: Path) -> list[Path]:
    """Return temporary files of runs and uploads."""
    return [path for name in ("tmp", "scratch") for path in (folder / name).rglob("*") if path.is_file()]


async def names(app: AppFixture) -> int:
    """Return the number of files in the database."""
    row = await app.database.read(one("media_usage", account_id=app.account.id))
    return int(row["used"]) if row is not None else 0


async def test_image_that_cannot_be_stored_is_503_and_free(tmp_path: Path) -> None:
    def rule(_number: int, line: str) -> str:
        return "500" if line.startswith("PUT") and "/uploads/" in line else "pass"

    async with faulty_proxy(s3.server().port, rule) as front, on_s3(tmp_path, front) as app:
        placed = await app.client.get("/create_and_upload_image", params=SMALL, headers=app.bearer)
        assert placed.status_code == 503
        assert await app.balance() == ("5.00", "0.00")
        assert await listing(app) == []
        assert await app.faults() == ()


async def test_unreadable_file_is_503(tmp_path: Path) -> None:
    broken = asyncio.Event()
    async with (
        faulty_proxy(s3.server().port, lambda *_: "500" if broken.is_set() else "pass") as front,
        on_s3(tmp_path, front) as app,
    ):
        url = await create_image(app)
        await clear_cache(tmp_path)
        broken.set()
        response = await app.client.get(url)
        assert (response.status_code, response.json()["code"]) == (503, "storage_unavailable")


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["blob_url", "upload_url"])
@pytest.mark.parametrize("url", ["ftp://bucket", "s3://", "bucket", "s3://bucket/../x"])
def test_invalid_bucket_url_raises_invalid_setting(tmp_path: Path, name: str, url: str) -> None:
    settings = Settings(data_dir=tmp_path).replace(**{name: url})
    with pytest.raises(InvalidSetting, match="bucket"):
        storage.open_blobs(settings) if name == "blob_url" else storage.open_uploads(settings)


def test_a_link_of_more_than_a_week_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="from 0 to 604800"):
        Settings(blob_link_seconds=7 * 24 * 3600 + 1)


def test_keys_of_a_bucket_are_not_printed_with_the_settings() -> None:
    assert "hush" not in repr(Settings(tables={"buckets": {"s3": {"secret_access_key": "hush"}}}))
