"""fal's video model against a loopback queue: its requests, results and refusals."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.drivers.remote import ServerServices
from sixfold.engines.providers.fal import FalVideoEngine
from sixfold.engines.video.decoder import AudioTrack
from sixfold.net import data_uris
from tests.fakes import fal as fakes
from tests.fakes import fault_server
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import LIMITS, Record

INPUTS = {
    "prompt": "slow pan left",
    "negative_prompt": "blur",
    "seed": 7,
    "num_frames": 81,
    "frames_per_second": 16,
    "resolution": "480p",
    "aspect_ratio": "auto",
    "num_inference_steps": 27,
    "guidance_scale": 3.5,
    "enable_safety_checker": True,
    "interpolator_model": "film",
    "num_interpolated_frames": 1,
}


def engine(fal: fakes.Fal, outside: ServerServices, **options: Any) -> FalVideoEngine:
    limits = {**LIMITS, **options.pop("limits", {})}
    return FalVideoEngine(outside, route="film", base_url=fal.url, limits=limits, **options)


def video_task(folder: Path) -> Task:
    return parts.task("video-a", {"image_url": parts.source(folder)}, **INPUTS)


async def test_video_is_stored_with_its_properties_and_cost(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    record = Record(tmp_path)
    result = await engine(fal, outside).run(video_task(tmp_path), record)
    (artifact,) = result.artifacts
    assert artifact.content_type == "video/mp4"
    assert artifact.info == {"width": 64, "height": 48, "duration": 0.25, "fps": 32}
    assert artifact.path is not None
    assert artifact.path.read_bytes()[4:8] == b"ftyp"
    assert result.upstream_cost_micros == 202_500  # 81 frames at 16 a second, half of 0.08 USD each
    assert (result.quality, result.data["seed"]) == ("full", 7)
    assert record.fractions[-1] == 1.0


async def test_every_parameter_is_sent_and_the_image_is_stripped(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    await engine(fal, outside).run(video_task(tmp_path), Record(tmp_path))
    (request,) = fal.faults.steps("submit")
    image = request.document.pop("image_url")
    assert request.document == INPUTS
    assert request.path == "/fal-ai/wan/v2.2-a14b/image-to-video"
    assert data_uris.parse_data_uri(image, 1 << 20).body.startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    "file",
    [
        (b"<html>no film</html>", "video/mp4"),
        (fault_server.video(16)[:600], "video/mp4"),
        (b"\x1aE\xdf\xa3" + bytes(64), "video/webm"),
        (b"\0\0\0\x18ftypmp42" + bytes(64), "video/mp4"),
        (b"#EXTM3U\nfile:///etc/passwd\n", "video/mp4"),
    ],
)
async def test_invalid_video_is_refused_whatever_its_name(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path, file: tuple[bytes, str]
) -> None:
    fal.file = file
    with pytest.raises(EngineError, match="cannot be read"):
        await engine(fal, outside).run(video_task(tmp_path), Record(tmp_path))


async def test_canceled_run_is_canceled_at_fal(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    fal.ends = False
    task = asyncio.create_task(engine(fal, outside).run(video_task(tmp_path), Record(tmp_path)))
    await fal.faults.event("status").wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(job.canceled for job in fal.jobs.values())


async def test_failure_at_fal_fails_the_run(fal: fakes.Fal, outside: ServerServices, tmp_path: Path) -> None:
    fal.failure = (500, {"detail": "boom"})
    with pytest.raises(EngineError):
        await engine(fal, outside, limits={"attempts": 1}).run(video_task(tmp_path), Record(tmp_path))


async def test_run_without_an_image_sends_no_request(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match="source image"):
        await engine(fal, outside).run(parts.task("video-a", **INPUTS), Record(tmp_path))
    assert fal.faults.steps("submit") == []


def scenes(fal: fakes.Fal, outside: ServerServices, **options: Any) -> FalVideoEngine:
    return FalVideoEngine(outside, route="film-scene", base_url=fal.url, limits=LIMITS, **options)


SCENE = {
    "prompt": "waves at night",
    "duration": 1,
    "resolution": "480p",
    "seed": 7,
    "sound": True,
    "frames_per_second": 24,
}


async def test_text_to_video_is_cut_to_requested_length_and_size(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    record = Record(tmp_path)
    result = await scenes(fal, outside).run(parts.task("video-text", **SCENE), record)
    (request,) = fal.faults.steps("submit")
    assert request.path == "/fal-ai/ltx-2.3/text-to-video/fast"
    assert request.document == {
        "prompt": "waves at night",
        "duration": 6,
        "generate_audio": True,
        "resolution": "1080p",
        "fps": 25,
    }
    (artifact,) = result.artifacts
    assert artifact.info == {"width": 854, "height": 480, "duration": pytest.approx(1.0, abs=0.03), "fps": 25}
    assert artifact.path is not None
    with closing(AudioTrack(artifact.path)) as voice:
        assert np.abs(voice.read(24_000)).max() > 0.5
    # The generated video has six seconds.
    assert result.upstream_cost_micros == 240_000
    assert any("support seed" in line for line in record.lines)


async def test_image_to_video_uses_its_model_and_needs_no_prompt(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    task = parts.task("video-image", {"image_url": parts.source(tmp_path)}, **{**SCENE, "prompt": ""})
    result = await scenes(fal, outside).run(task, Record(tmp_path))
    (request,) = fal.faults.steps("submit")
    assert request.path == "/fal-ai/ltx-2.3/image-to-video/fast"
    assert request.document["prompt"]
    assert request.document["image_url"].startswith("data:image/jpeg")
    assert result.data["provider_model"] == "fal-ai/ltx-2.3/image-to-video/fast"


async def test_fitting_video_is_not_encoded_again(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    task = parts.task("video-c", **{**SCENE, "duration": 6, "sound": False, "width": 160, "height": 90})
    result = await scenes(fal, outside).run(task, Record(tmp_path))
    (artifact,) = result.artifacts
    assert artifact.path is not None
    assert artifact.path.read_bytes() in [data for data, _ in fal.files.values()]


@pytest.mark.parametrize(
    "file", [fault_server.video(25, 10, (160, 90)), fault_server.video(25, 25, (160, 90))]
)
async def test_too_short_or_silent_video_is_refused(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path, file: bytes
) -> None:
    fal.file = (file, "video/mp4")
    with pytest.raises(EngineError, match="cannot be read"):
        await scenes(fal, outside).run(parts.task("video-text", **SCENE), Record(tmp_path))


async def test_smart_video_has_the_length_and_size_of_its_backend(
    fal: fakes.Fal, outside: ServerServices, tmp_path: Path
) -> None:
    inputs = {**INPUTS, "negative_prompt": "", "backend": "video-a"}
    task = parts.task("ra2v", {"image_url": parts.source(tmp_path)}, **inputs)
    result = await scenes(fal, outside).run(task, Record(tmp_path))
    (request,) = fal.faults.steps("submit")
    assert (request.document["duration"], request.document["generate_audio"]) == (6, False)
    (artifact,) = result.artifacts
    assert artifact.info["duration"] == pytest.approx(161 / 32, abs=0.05)
