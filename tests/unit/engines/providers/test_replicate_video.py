"""Replicate's video models against loopback predictions: requests and results."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.drivers.remote import ServerServices
from sixfold.engines.providers.replicate import ReplicateVideoEngine
from sixfold.engines.video.decoder import AudioTrack, VideoReader
from tests.fakes import fault_server
from tests.fakes import replicate as fakes
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import LIMITS, Record

ASKED = {
    "prompt": "slow pan left",
    "negative_prompt": "blur",
    "seed": 7,
    "num_frames": 81,
    "frames_per_second": 50,
    "resolution": "580p",
    "aspect_ratio": "1:1",
    "num_inference_steps": 27,
    "guidance_scale": 3.5,
    "interpolator_model": "film",
    "num_interpolated_frames": 1,
    "width": 64,
    "height": 64,
}
SCENE = {"prompt": "waves", "duration": 1, "resolution": "480p", "sound": True, "frames_per_second": 24}


def engine(
    replicate: fakes.Replicate, outside: ServerServices, route: str = "film", **options: Any
) -> ReplicateVideoEngine:
    return ReplicateVideoEngine(outside, route=route, base_url=replicate.url, limits=LIMITS, **options)


def video_task(folder: Path, **more: Any) -> Task:
    return parts.task("video-a", {"image_url": parts.source(folder)}, **{**ASKED, **more})


async def test_video_has_the_requested_frames_rate_and_shape(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path
) -> None:
    record = Record(tmp_path)
    result = await engine(replicate, outside).run(video_task(tmp_path), record)
    (artifact,) = result.artifacts
    assert artifact.path is not None
    assert artifact.info == {"width": 64, "height": 64, "duration": pytest.approx(1.61, abs=0.01), "fps": 100}
    with closing(VideoReader(artifact.path)) as reel:
        levels = [reel.pixels(frame, (64, 64)).mean() for frame in reel.each()]
    assert len(levels) == 161
    assert np.all(np.diff(levels[:25:2]) > 5), "the frames that were made, in their order"
    assert levels[3] == pytest.approx((levels[2] + levels[4]) / 2, abs=4)
    assert (result.quality, result.data["seed"]) == ("full", 7)
    assert result.upstream_cost_micros == 110_363  # 81 frames at 16 a second
    assert record.fractions[-1] == 1.0


async def test_supported_inputs_are_sent_and_others_reported(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path
) -> None:
    record = Record(tmp_path)
    await engine(replicate, outside).run(video_task(tmp_path), record)
    (request,) = replicate.faults.steps("create")
    assert request.path == "/v1/models/wan-video/wan-2.2-i2v-fast/predictions"
    assert request.headers["prefer"] == "wait=5"
    image = request.document["input"].pop("image")
    assert image.startswith("data:image/jpeg")
    assert request.document["input"] == {
        "prompt": "slow pan left",
        "seed": 7,
        "num_frames": 81,
        "resolution": "720p",
        "go_fast": True,
        "interpolate_output": False,
    }
    assert any("support negative_prompt" in line for line in record.lines)


async def test_large_source_image_is_deleted_after_the_run(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path
) -> None:
    source = tmp_path / "noise.png"
    source.write_bytes(parts.noise(900, 900))
    task = parts.task("video-a", {"image_url": source}, **ASKED)
    await engine(replicate, outside).run(task, Record(tmp_path))
    (request,) = replicate.faults.steps("create")
    assert "/v1/files/" in request.document["input"]["image"]
    assert replicate.stored == {}


async def test_video_is_trimmed_to_its_length_and_keeps_its_audio(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path
) -> None:
    files = {"image_url": parts.source(tmp_path, 200, 300)}
    task = parts.task("video-image", files, **SCENE)
    result = await engine(replicate, outside, "film-scene").run(task, Record(tmp_path))
    (observed_request,) = replicate.faults.steps("create")
    request = observed_request.document["input"]
    assert (request["duration"], request["aspect_ratio"], request["generate_audio"]) == (6, "9:16", True)
    (artifact,) = result.artifacts
    assert artifact.info == {"width": 480, "height": 854, "duration": pytest.approx(1, abs=0.03), "fps": 25}
    assert artifact.path is not None
    with closing(AudioTrack(artifact.path)) as voice:
        assert np.abs(voice.read(24_000)).max() > 0.5
    assert result.upstream_cost_micros == 360_000


async def test_video_needs_a_prompt_or_an_image(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path
) -> None:
    result = await engine(replicate, outside, "film-scene").run(parts.task("ra2v", **SCENE), Record(tmp_path))
    assert result.data["provider_model"] == "lightricks/ltx-2.3-fast"
    with pytest.raises(EngineError, match="source image"):
        await engine(replicate, outside).run(parts.task("video-a", **ASKED), Record(tmp_path))


async def test_canceled_run_is_canceled_at_replicate(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path
) -> None:
    replicate.ends = False
    task = asyncio.create_task(engine(replicate, outside).run(video_task(tmp_path), Record(tmp_path)))
    await replicate.faults.event("look").wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert {job.status for job in replicate.jobs.values()} == {"canceled"}


@pytest.mark.parametrize(
    "film", [b"<html>no film</html>", fault_server.video(16, 12), fault_server.video(16, 81)[:900]]
)
async def test_invalid_or_too_short_video_is_refused(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path, film: bytes
) -> None:
    replicate.video = film
    with pytest.raises(EngineError, match="cannot be read"):
        await engine(replicate, outside).run(video_task(tmp_path), Record(tmp_path))


async def test_failure_at_replicate_fails_the_run(
    replicate: fakes.Replicate, outside: ServerServices, tmp_path: Path
) -> None:
    replicate.error = "CUDA out of memory"
    with pytest.raises(EngineError, match="out of memory"):
        await engine(replicate, outside).run(video_task(tmp_path), Record(tmp_path))
