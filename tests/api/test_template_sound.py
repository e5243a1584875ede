"""Music and audio templates over HTTP: their outputs, and rejected inputs."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import av
import pytest

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app

RUN = "/api/containers/run"


@pytest.fixture
async def engine_app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with the real engines."""
    async with running_app(tmp_path, app_catalog.models_document()) as result:
        yield result


async def run_template(app: AppFixture, model: str, **inputs: Any) -> dict[str, Any]:
    """Run a template; return the finished prediction."""
    response = await app.client.post(RUN, json={"model": model, "input": inputs}, headers=app.bearer)
    assert response.status_code == 200, response.text
    assert response.json()["status"] == "succeeded", response.text
    return response.json()


async def seconds(app: AppFixture, url: str) -> float:
    """Return the duration of an audio file by its decoded frames."""
    response = await app.client.get(url)
    with av.open(io.BytesIO(response.content), "r") as container:
        return sum(frame.samples / frame.rate for frame in container.decode(audio=0))


async def test_piano_audio_is_separated_into_stems_and_plotted(engine_app: AppFixture) -> None:
    played = await run_template(engine_app, "piano", bars=1, tempo=120)
    assert (played["engine"], played["quality"]) == ("piano", "full")
    url = played["output"]["url"]
    assert await seconds(engine_app, url) == pytest.approx(2.0, abs=0.03)
    parts = (await run_template(engine_app, "stem-separator", audio=url, stems="four", format="wav"))[
        "output"
    ]
    assert set(parts) == {"vocals", "drums", "bass", "other"}
    assert await seconds(engine_app, parts["bass"]["url"]) == pytest.approx(2.0, abs=0.03)
    drawn = (await run_template(engine_app, "media-encode", media=url, operation="waveform", width=200))[
        "output"
    ]
    assert (drawn["content_type"], drawn["width"]) == ("image/png", 200)
    small = (await run_template(engine_app, "media-optimizer", media=drawn["url"], widths="100,5000"))[
        "output"
    ]
    assert [row["name"] for row in small["files"]] == ["image-100.webp"]
    assert small["image-100.webp"]["content_type"] == "image/webp"


async def test_music_and_songs_are_previews_of_exact_length(engine_app: AppFixture) -> None:
    music = await run_template(engine_app, "music-diffusion", prompt="lo-fi piano", duration=10, bpm=90)
    song = await run_template(
        engine_app, "song-gen", style="rock", lyrics="[Verse]\nla la", semantic_max_tokens=200
    )
    assert {music["quality"], song["quality"]} == {"preview"}
    assert await seconds(engine_app, music["output"]["url"]) == pytest.approx(10, abs=0.03)
    assert await seconds(engine_app, song["output"]["url"]) == pytest.approx(8, abs=0.03)


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("piano", {"bars": 33, "key": "H", "sound": "x", "tempo": 1}, ["sound", "bars", "tempo", "key"]),
    ("music-diffusion", {"duration": 9, "key": "H dur"}, ["prompt", "duration", "key"]),
    ("song-gen", {"style": "x", "lyrics": "x", "abc": "CDE", "cot": "off"}, ["abc"]),
    ("stem-separator", {"stems": "six"}, ["audio", "stems"]),
    ("media-encode", {"operation": "burn", "width": 8}, ["media", "operation", "width"]),
    ("media-optimizer", {"widths": "a", "formats": "bmp"}, ["media", "widths", "formats"]),
    ("media-optimizer", {"widths": "320,15", "heights": "8193"}, ["media", "widths", "heights"]),
]


@pytest.mark.parametrize(("model", "inputs", "names"), REFUSED)
async def test_invalid_audio_inputs_are_rejected_before_the_run(
    engine_app: AppFixture, model: str, inputs: dict[str, Any], names: list[str]
) -> None:
    response = await engine_app.client.post(
        RUN, json={"model": model, "input": inputs}, headers=engine_app.bearer
    )
    assert response.status_code == 400
    assert [item["input"] for item in response.json()["errors"]] == names
    assert await engine_app.balance() == ("5.00", "0.00")
