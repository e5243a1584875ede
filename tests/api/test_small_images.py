"""Small images of stored files: audio without one gets 404 after a single attempt to decode it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.media import thumbnails
from tests.api.app_fixture import AppFixture, running_app, small_models
from tests.api.test_pages import signed_in


async def upload(app: AppFixture, folder: Path, content_type: str) -> str:
    """Store a file that cannot be decoded and return its path."""
    path = folder / "upload"
    path.write_bytes(b"neither sound nor image")
    stored = await app.server.media.upload(Tenant(app.account.id), path, content_type)
    return f"/media/{stored.name}"


@pytest.fixture
def decoded(app: AppFixture) -> list[Path]:
    """Return the list of files that the server tries to decode as audio, all without success."""
    attempts: list[Path] = []

    def refuse(path: Path, _width: int) -> bytes:
        attempts.append(path)
        raise errors.BadRequest("not audio")

    app.server.media.thumbnails.renderers["audio"] = refuse
    return attempts


async def test_undecodable_audio_has_no_small_image(
    app: AppFixture, tmp_path: Path, decoded: list[Path]
) -> None:
    path = await upload(app, tmp_path, "audio/mpeg")
    answers = await asyncio.gather(*(app.client.get(f"{path}?w={width}") for width in (160, 320, 320)))
    assert [response.status_code for response in answers] == [404] * 3
    assert "request the file without w" in answers[0].json()["error"]
    assert len(decoded) == 1
    assert (await app.client.get(path)).content == b"neither sound nor image"


async def test_raw_samples_are_not_decoded(app: AppFixture, tmp_path: Path, decoded: list[Path]) -> None:
    path = await upload(app, tmp_path, "audio/pcm")
    assert (await app.client.get(f"{path}?w=320")).status_code == 404
    assert decoded == []


async def test_undecodable_image_is_returned_itself(app: AppFixture, tmp_path: Path) -> None:
    path = await upload(app, tmp_path, "image/svg+xml")
    response = await app.client.get(f"{path}?w=320")
    assert (response.status_code, response.content) == (200, b"neither sound nor image")


@pytest.mark.parametrize(
    ("content_type", "is_offered"),
    [
        ("image/png", True),
        ("video/mp4", True),
        ("audio/wav", True),
        ("audio/pcm", False),
        ("audio/pcm;rate=24000", False),
        ("image/svg+xml", False),
        ("text/plain", False),
    ],
)
def test_small_images_are_offered_by_type(content_type: str, *, is_offered: bool) -> None:
    assert thumbnails.is_offered(content_type) is is_offered


async def test_pages_show_raw_samples_without_a_small_image(tmp_path: Path) -> None:
    async with running_app(tmp_path, small_models(real={"speech"})) as app:
        spoken = {"model": "tts", "input": "good morning", "voice": "alloy", "response_format": "pcm"}
        response = await app.client.post("/v1/audio/speech", json=spoken, headers=app.bearer)
        assert response.status_code == 200, response.text
        response = await app.client.get("/api/containers/predictions", headers=app.bearer)
        (prediction,) = response.json()["predictions"]
        await signed_in(app)
        for path in ("/predictions", f"/predictions/{prediction['id']}"):
            page = (await app.client.get(path)).text
            assert "good morning" in page
            assert "?w=" not in page, path
