"""Background removal from videos over HTTP: three formats, two paths, audio, and prices."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.engines.video import encode
from sixfold.engines.video.decoder import VideoReader
from tests.api.app_fixture import AppFixture, running_app
from tests.api.media_samples import DecodedVideo, finished_job, upload, wave

PATH = "/api/remove-background-video"
SIZE, FRAMES = (96, 64), 8


@pytest.fixture
async def engine_app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with every real engine."""
    async with running_app(tmp_path, app_catalog.models_document()) as result:
        yield result


def subject(frame: int) -> np.ndarray[Any, Any]:
    """Return the position of the ball in a frame."""
    mask = np.zeros((SIZE[1], SIZE[0]), np.uint8)
    return cv2.circle(mask, (36 + 3 * frame, 32), 18, 255, -1, cv2.LINE_AA)


@pytest.fixture
def source(tmp_path: Path) -> bytes:
    """Write a video of a red ball that rolls in front of a wall, with a tone."""
    path = tmp_path / "ball.mp4"
    with encode.VideoEncoder(path, SIZE, Fraction(8), encode.AudioSource.of(wave(1.0, 440))) as video:
        for frame in range(FRAMES):
            share = subject(frame)[..., None] / 255
            video.add((share * (200, 40, 40) + (1 - share) * (190, 195, 200)).astype(np.uint8))
    return path.read_bytes()


async def cut(app: AppFixture, url: str | None, path: str = PATH, **more: Any) -> Any:
    """Submit a job; return the response."""
    return await app.client.post(path, json={"api_key": app.key, "video_url": url, **more})


@pytest.mark.parametrize("path", [PATH, f"/alt{PATH}"])
async def test_video_background_is_removed_for_fifty_cents(
    engine_app: AppFixture, source: bytes, tmp_path: Path, path: str
) -> None:
    response = await cut(engine_app, await upload(engine_app, source), path)
    assert response.status_code == 200, response.text
    body = response.json()
    url = body["video"].pop("url")
    assert body["video"] == {
        "width": 96,
        "height": 64,
        "duration": 1.0,
        "fps": 8,
        "content_type": "video/webm",
    }
    assert (body["cost"], body["credits_charged"]) == ("0.50", 50)
    assert 0 <= body["confidence"] <= 1
    assert response.headers["X-Sixfold-Quality"] == "preview"
    data = (await engine_app.client.get(url)).content
    video = DecodedVideo(data)
    assert video.codecs == {"video": "vp9", "audio": "opus"}
    assert abs(video.pitch(0.1, 0.9) - 440) < 5
    result = tmp_path / "made.webm"
    result.write_bytes(data)
    reel = VideoReader(result)
    for frame in range(FRAMES):
        alpha = reel.pixels(reel.at(frame / 8), SIZE)[..., 3].astype(int)
        truth = subject(frame).astype(int)
        assert np.minimum(alpha, truth).sum() / np.maximum(alpha, truth).sum() > 0.8, frame
    reel.close()
    assert await engine_app.balance() == ("4.50", "0.00")


async def test_video_without_background_can_be_mov_or_png_sequence(
    engine_app: AppFixture, source: bytes
) -> None:
    url = await upload(engine_app, source)
    mov = (await cut(engine_app, url, format="mov")).json()["video"]
    assert mov["content_type"] == "video/quicktime"
    video = DecodedVideo((await engine_app.client.get(mov["url"])).content)
    assert (video.codecs, len(video.frames)) == ({"video": "prores", "audio": "aac"}, FRAMES)
    assert video.pixels.startswith("yuva444p")
    images = (await cut(engine_app, url, format="png_sequence")).json()["video"]
    assert (images["content_type"], images["fps"]) == ("application/zip", 8)
    with zipfile.ZipFile(io.BytesIO((await engine_app.client.get(images["url"])).content)) as packed:
        names = packed.namelist()
        first = Image.open(io.BytesIO(packed.read(names[0])))
    assert names == [f"{number:05}.png" for number in range(FRAMES)]
    assert (first.mode, first.size) == ("RGBA", SIZE)


async def test_job_has_the_result_of_a_direct_request(engine_app: AppFixture, source: bytes) -> None:
    queued = await cut(engine_app, await upload(engine_app, source), response_mode="polling")
    assert queued.status_code == 202
    job = await finished_job(engine_app, queued.json()["status_url"])
    assert set(job["result"]) == {"video", "confidence", "cost", "credits_charged"}


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (None, "Invalid video_url: it is required"),
        ("", "Invalid video_url: it is required"),
        (
            "data:video/mp4;base64,AAAA",
            "Invalid video_url: The file is not a video (MP4, MOV, WebM, AVI or GIF)",
        ),
        ("http://127.0.0.1/x.mp4", None),
        ("file:///etc/passwd", None),
    ],
)
async def test_matting_of_a_file_without_video_is_rejected_and_free(
    engine_app: AppFixture, url: str | None, text: str | None
) -> None:
    response = await cut(engine_app, url)
    assert response.status_code == 400
    assert response.json()["error"].startswith("Invalid video_url")
    assert text is None or response.json()["error"] == text
    assert await engine_app.balance() == ("5.00", "0.00")


async def test_truncated_video_is_400_and_free(engine_app: AppFixture, source: bytes) -> None:
    for data in (source[:600], source[:64] + bytes(3000)):
        response = await cut(engine_app, await upload(engine_app, data))
        assert response.status_code == 400, response.text
    assert await engine_app.balance() == ("5.00", "0.00")
