"""OpenAI's videos API by the official client, over the real preview engine of this server."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import av
import httpx2
import openai
import pytest
from PIL import Image

from sixfold.api.gateway.openai.videos import models
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import keys
from sixfold.core.accounts.rights import Rights
from sixfold.settings import Settings
from tests.api.app_fixture import AppFixture, bearer, running_app, small_models
from tests.api.test_video import image_uri, short_videos

POLL = 100


@pytest.fixture(autouse=True)
def _deprecated() -> Iterator[None]:
    """The client warns of OpenAI's own end of the API."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.fixture
async def video_app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with the real video engine and short videos."""
    async with running_app(tmp_path, short_videos()) as result:
        yield result


@pytest.fixture
async def dot_app(either: Path) -> AsyncIterator[AppFixture]:
    """A server whose engines paint dots, on both databases."""
    async with running_app(either, small_models()) as result:
        yield result


def client(app: AppFixture, key: str | None = None) -> Any:
    transport = httpx2.ASGITransport(app.asgi, client=("127.0.0.1", 40000))
    visitor = httpx2.AsyncClient(transport=transport)
    return cast(
        "Any",
        openai.AsyncOpenAI(
            api_key=key or app.key, base_url="http://127.0.0.1:8600/v1", http_client=visitor, max_retries=0
        ),
    )


def png() -> bytes:
    return base64.b64decode(image_uri().partition(",")[2])


async def test_text_becomes_a_video_that_is_polled_and_downloaded(video_app: AppFixture) -> None:
    videos = client(video_app).videos
    result = await videos.create_and_poll(
        model="sora-2", prompt="slow pan left", seconds="4", size="1280x720", poll_interval_ms=POLL
    )
    assert (result.status, result.progress, result.object, result.error) == ("completed", 100, "video", None)
    assert (result.model, result.prompt, result.size) == ("video-text", "slow pan left", "854x480")
    assert result.completed_at >= result.created_at
    content = await (await videos.download_content(result.id)).aread()
    with av.open(io.BytesIO(content), "r") as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height) == (854, 480)
    # 4 seconds at 0.048 USD.
    assert await video_app.balance() == ("4.808", "0.00")
    assert await video_app.faults() == ()


async def test_still_images_show_frames_of_the_video(video_app: AppFixture) -> None:
    videos = client(video_app).videos
    result = await videos.create_and_poll(prompt="slow pan left", poll_interval_ms=POLL)
    thumbnail = await (await videos.download_content(result.id, variant="thumbnail")).aread()
    sheet = await (await videos.download_content(result.id, variant="spritesheet")).aread()
    with Image.open(io.BytesIO(thumbnail)) as image:
        assert (image.format, image.size) == ("WEBP", (854, 480))
    with Image.open(io.BytesIO(sheet)) as image:
        assert (image.format, image.width % 5, image.height % 5) == ("JPEG", 0, 0)
        assert image.width == 5 * 320
    response = await video_app.client.get(
        f"/v1/videos/{result.id}/content?variant=poster", headers=video_app.bearer
    )
    assert response.status_code == 400


async def test_part_of_a_video_is_served(video_app: AppFixture) -> None:
    result = await client(video_app).videos.create_and_poll(prompt="slow pan left", poll_interval_ms=POLL)
    path = f"/v1/videos/{result.id}/content"
    full_response = await video_app.client.get(path, headers=video_app.bearer)
    part = await video_app.client.get(path, headers={**video_app.bearer, "Range": "bytes=4-11"})
    assert (part.status_code, part.content) == (206, full_response.content[4:12])
    assert part.headers["Cache-Control"] == "private, no-cache"
    assert (await video_app.client.get(path)).status_code == 401


@pytest.mark.parametrize("way", ["file", "form", "json", "stored"])
async def test_reference_image_becomes_a_video(video_app: AppFixture, way: str) -> None:
    own, prompt = client(video_app), {"prompt": "slow pan left"}
    if way == "file":
        result = await own.videos.create_and_poll(
            **prompt, input_reference=("a.png", png()), poll_interval_ms=POLL
        )
    else:
        stored = await own.files.create(file=("a.png", png()), purpose="vision")
        reference = {"file_id": stored.id} if way == "stored" else {"image_url": image_uri()}
        body: Any = {"json": {**prompt, "input_reference": reference}}
        if way == "form":
            fields = {**prompt, "input_reference[image_url]": image_uri()}
            body = {"files": {name: (None, value) for name, value in fields.items()}}
        response = await video_app.client.post("/v1/videos", **body, headers=video_app.bearer)
        result = await own.videos.poll(response.json()["id"], poll_interval_ms=POLL)
    assert (result.status, result.model) == ("completed", "video-image")


async def test_videos_are_listed_in_pages_in_both_orders(dot_app: AppFixture) -> None:
    videos = client(dot_app).videos
    results = [(await videos.create(prompt=f"film {number}")).id for number in range(5)]
    await client(dot_app, dot_app.other).videos.create(prompt="theirs")
    image = {"prompt": "a dot", "n": 1}
    await dot_app.client.post("/v1/images/generations", json=image, headers=dot_app.bearer)
    page = await videos.list(limit=2)
    assert ([video.id for video in page.data], page.has_more) == (results[:2:-1], True)
    assert [video.id async for video in await videos.list(limit=2)] == results[::-1]
    assert [video.id async for video in await videos.list(limit=2, order="asc")] == results
    response = await dot_app.client.get("/v1/videos?limit=101", headers=dot_app.bearer)
    assert response.status_code == 400
    response = await dot_app.client.get("/v1/videos?after=film", headers=dot_app.bearer)
    assert response.status_code == 404


async def test_deleted_video_is_gone_with_its_file(dot_app: AppFixture) -> None:
    videos = client(dot_app).videos
    result = await videos.create_and_poll(prompt="a film", poll_interval_ms=POLL)
    stored = await dot_app.client.get(
        f"/api/containers/predictions/pred_{result.id.removeprefix('video_')}", headers=dot_app.bearer
    )
    url = stored.json()["output"]["url"]
    assert (await dot_app.client.get(url)).status_code == 200
    deleted = await videos.delete(result.id)
    assert deleted.model_dump() == {"id": result.id, "deleted": True, "object": "video.deleted"}
    assert (await dot_app.client.get(url)).status_code == 404
    for asking in (videos.retrieve(result.id), videos.delete(result.id), videos.download_content(result.id)):
        with pytest.raises(openai.NotFoundError, match=result.id):
            await asking
    assert [video.id async for video in await videos.list()] == []


async def test_failed_video_has_an_error_and_is_free(tmp_path: Path) -> None:
    failing = {"failpoints": "engine.run.video-text=fail"}
    async with running_app(tmp_path, small_models(), **failing) as app:
        videos = client(app).videos
        result = await videos.create_and_poll(prompt="a film", poll_interval_ms=POLL)
        assert result.status == "failed"
        assert result.error.code
        assert result.error.message
        with pytest.raises(openai.ConflictError, match="failed"):
            await videos.download_content(result.id)
        assert await app.balance() == ("5.00", "0.00")


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "prompt", "required"),
        ({"prompt": "x", "seconds": "21"}, "seconds", "from 1 to 20"),
        ({"prompt": "x", "seconds": "many"}, "seconds", "number"),
        ({"prompt": "x", "seconds": 10**400}, "seconds", "number"),
        ({"prompt": "x", "size": "720x1280"}, "size", "short side of 480, 720, 1080, 16:9"),
        ({"prompt": "x", "size": "big"}, "size", "WIDTHxHEIGHT"),
        ({"prompt": "x", "model": "video-a"}, "input_reference", "requires an image"),
        ({"prompt": "x", "model": "video-text", "input_reference": {"image_url": "https://x/y.png"}},
         "input_reference", "does not accept an image"),
        ({"prompt": "x", "input_reference": {"image_url": "ftp://x"}}, "input_reference", "image file"),
        ({"prompt": "x", "input_reference": {"image_url": "data:image/png,x"}}, "input_reference", "base64"),
        ({"prompt": "x", "input_reference": 7}, "input_reference", "object"),
        ({"prompt": "x", "model": "ra2v", "seconds": "4"}, "seconds", "a fixed length"),
        ({"prompt": "x", "model": "ra2v", "size": "1280x720"}, "size", "a fixed size"),
    ],
)  # fmt: skip
async def test_invalid_video_request_is_refused(
    video_app: AppFixture, body: Any, param: str, words: str
) -> None:
    response = await video_app.client.post("/v1/videos", json=body, headers=video_app.bearer)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert words in error["message"]
    assert await video_app.balance() == ("5.00", "0.00")


async def test_unknown_model_and_change_of_a_video_are_refused(video_app: AppFixture) -> None:
    videos = client(video_app).videos
    with pytest.raises(openai.NotFoundError, match="video-text"):
        await videos.create(prompt="x", model="ra1")
    for asking in (
        videos.remix("video_1", prompt="x"),
        videos.edit(prompt="x", video=("a.mp4", b"x")),
        videos.extend(prompt="x", seconds="4", video=("a.mp4", b"x")),
    ):
        with pytest.raises(openai.BadRequestError, match="The models of this server cannot"):
            await asking


async def test_other_account_and_limited_key_find_no_video(dot_app: AppFixture) -> None:
    videos = client(dot_app).videos
    result = await videos.create_and_poll(prompt="a film", poll_interval_ms=POLL)
    run_only = keys.create(dot_app.account.id, granted=Rights.RUN)
    limited = (await dot_app.database.write(run_only)).api_key
    for key in (dot_app.other, limited):
        theirs = client(dot_app, key).videos
        for asking in (
            theirs.retrieve(result.id),
            theirs.delete(result.id),
            theirs.download_content(result.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await asking
        assert [video.id async for video in await theirs.list()] == []
    assert (await videos.retrieve(result.id)).status == "completed"


async def test_other_prediction_is_no_video(dot_app: AppFixture) -> None:
    run = {"model": "ra2", "input": {"prompt": "x", "width": 64, "height": 64}}
    body = (await dot_app.client.post("/api/containers/run", json=run, headers=dot_app.bearer)).json()
    video = f"video_{body['id'].removeprefix('pred_')}"
    with pytest.raises(openai.NotFoundError):
        await client(dot_app).videos.retrieve(video)


async def test_repeated_request_creates_one_video(dot_app: AppFixture) -> None:
    body = {"prompt": "a film"}
    headers = {**dot_app.bearer, "Idempotency-Key": "once"}
    ids = {
        (await dot_app.client.post("/v1/videos", json=body, headers=headers)).json()["id"] for _ in range(2)
    }
    assert len(ids) == 1


async def test_list_of_models_names_the_video_models(dot_app: AppFixture) -> None:
    response = await dot_app.client.get("/v1/models", headers=bearer(dot_app.key))
    names = {row["id"] for row in response.json()["data"]}
    assert {"video-text", "video-image", "video-a", "video-c", "ra2v"} <= names


@pytest.mark.parametrize(
    ("name", "seconds", "size", "image", "inputs"),
    [
        ("video-text", None, None, False, {"duration": 4}),
        ("video-text", "12", "1792x1024", False, {"duration": 12, "resolution": "1080p"}),
        ("video-image", "8", "720x1280", True, {"duration": 8, "resolution": "720p"}),
        ("video-a", "6", "720x1280", True,
         {"num_frames": 97, "resolution": "720p", "aspect_ratio": "9:16"}),
        ("video-t2v", "4", "832x480", False, {"num_frames": 65, "resolution": "832x480"}),
        ("video-b", None, None, True, {}),
    ],
)  # fmt: skip
def test_seconds_and_size_become_inputs_of_the_model(
    tmp_path: Path, name: str, seconds: Any, size: Any, image: bool, inputs: dict[str, Any]
) -> None:
    settings = Settings(data_dir=tmp_path)
    catalog = app_catalog.catalog(settings, app_catalog.price_table(settings))
    model = models.resolve(catalog, name, has_image=image)
    values = {**models.length(model, seconds), **models.size(model, size, has_image=image)}
    assert values == inputs
