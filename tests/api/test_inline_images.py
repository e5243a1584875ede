"""Images in base64 in the responses of `/v1/images`, which are read from the store in pieces."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sixfold.api.gateway.openai import media_jobs
from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_openai_media import decoded_image, paid, post
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppFixture]:
    """A server with the bundled catalog and its own engines."""
    async with running_app(
        tmp_path_factory.mktemp("inline"), app_catalog.models_document(), **FILES
    ) as result:
        yield result


async def test_large_images_are_streamed_from_the_store(
    real: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = float((await real.balance())[0])
    headers = {**real.bearer, "Idempotency-Key": "large pictures"}
    body = {"prompt": "a wood", "size": "64x64", "n": 2, "response_format": "b64_json"}
    monkeypatch.setattr(media_jobs, "MAX_STORED_BYTES", 0)
    # Only whole files are read by `get`.
    monkeypatch.delattr(type(real.server.blobs), "get")
    first, second = [
        await real.client.post("/v1/images/generations", json=body, headers=headers) for _ in range(2)
    ]
    assert first.headers["content-type"] == "application/json"
    assert (first.status_code, first.json()["data"]) == (200, second.json()["data"])
    assert [decoded_image(base64.b64decode(row["b64_json"])).size for row in first.json()["data"]] == [
        (64, 64)
    ] * 2
    # The second response was read from the store again.
    assert "idempotent-replayed" not in second.headers
    assert await paid(real, before) == 0.08


@pytest.mark.parametrize("lost", [{0}, {1}, {0, 1}])
async def test_unreadable_images_are_left_out_and_refunded(
    real: AppFixture, monkeypatch: pytest.MonkeyPatch, lost: set[int]
) -> None:
    before = float((await real.balance())[0])
    store, opened = type(real.server.blobs), list[str]()
    stream = store.stream

    async def stream_of_others(self: Any, key: str, *span: Any) -> AsyncIterator[bytes]:
        opened.append(key)
        if len(opened) - 1 in lost:
            raise KeyError(key)
        async for piece in stream(self, key, *span):
            yield piece

    monkeypatch.setattr(store, "stream", stream_of_others)
    body = {"prompt": "a moor", "size": "64x64", "n": 2, "response_format": "b64_json"}
    response = await post(real, "/v1/images/generations", body)
    assert len(opened) == 2
    if len(lost) == 2:
        assert (response.status_code, "data" in response.json()) == (503, False), response.text
    else:
        assert (response.status_code, len(response.json()["data"])) == (200, 1)
        assert response.json()["incomplete"]["returned"] == 1
    assert await paid(real, before) == 0.04 * (2 - len(lost))


async def test_large_speech_is_streamed_from_the_store(
    real: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = float((await real.balance())[0])
    headers = {**real.bearer, "Idempotency-Key": "long speech"}
    body = {"model": "tts", "input": "Good morning.", "response_format": "wav"}
    monkeypatch.setattr(media_jobs, "MAX_STORED_BYTES", 0)
    monkeypatch.delattr(type(real.server.blobs), "get")
    first, second = [await real.client.post("/v1/audio/speech", json=body, headers=headers) for _ in range(2)]
    assert (first.status_code, first.headers["content-type"]) == (200, "audio/wav")
    assert first.content == second.content
    assert int(first.headers["content-length"]) == len(first.content) > 1_000
    events = await post(real, "/v1/audio/speech", {**body, "stream_format": "sse"})
    documents = [json.loads(line[6:]) for line in events.text.splitlines() if line.startswith("data: ")]
    audio = b"".join(base64.b64decode(each.get("audio", "")) for each in documents)
    assert (audio[:4], documents[-1]["type"]) == (b"RIFF", "speech.audio.done")
    assert await paid(real, before) == 0.004
