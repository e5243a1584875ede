"""Video diffusion with tiny random Wan and LTX pipelines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import Canceled, EngineError, Result, Task
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from tests.fakes import fault_server
from tests.unit.engines.diffusers.conftest import PACKAGE_MISSING, Listener

pytestmark = pytest.mark.weights

BASE = {"prompt": "waves on a shore", "width": 96, "height": 64, "seed": 7, "frames_per_second": 24}
SHORT = {**BASE, "duration": 0.25}


@pytest.fixture(scope="module")
def video_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return engines by the name of their tiny weights; skip without torch."""
    for package in ("diffusers", "ftfy"):
        pytest.importorskip(package, reason=PACKAGE_MISSING)
    from sixfold.engines.video.diffusers.engine import VideoDiffusersEngine  # noqa: PLC0415 - it needs torch
    from tests.unit.engines.diffusers import tiny_video_models  # noqa: PLC0415 - it needs torch

    folder = tmp_path_factory.mktemp("films")
    tiny_video_models.wan(folder / "wan")
    tiny_video_models.wan(folder / "wan-both", pictures=True)
    tiny_video_models.wan(folder / "wan-deep", blocks=3)
    tiny_video_models.ltx(folder / "ltx")
    engines: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in engines:
            engines[name] = VideoDiffusersEngine(
                weights=str(folder), source=name, steps=2, threads=1, dtype="float32"
            )
        return engines[name]

    return of


def picture(folder: Path) -> dict[str, Path]:
    path = folder / "in.png"
    path.write_bytes(fault_server.image(300, 200, seed=3))
    return {"image_url": path}


def decoded_frames(result: Result) -> list[Any]:
    (artifact,) = result.artifacts
    assert artifact.path is not None
    with closing(VideoReader(artifact.path)) as reel:
        size = (artifact.info["width"], artifact.info["height"])
        frames, index = [], 0
        while not reel.ends_before(float(index / reel.rate)):
            frames.append(reel.pixels(reel.at(float(index / reel.rate)), size))
            index += 1
    return frames


@pytest.mark.parametrize("name", ["wan", "ltx"])
def test_text_to_video_has_the_requested_frames_and_size(
    video_engine: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    listener = Listener(tmp_path)
    result = video_engine(name).run(Task("pred_1", "video-c", SHORT), listener)
    frames = decoded_frames(result)
    assert (len(frames), frames[0].shape) == (6, (64, 96, 3))
    assert result.artifacts[0].info == {"width": 96, "height": 64, "duration": 0.25, "fps": 24}
    assert result.quality == "full"
    assert np.std(frames[2]) > 1
    assert listener.fractions == sorted(listener.fractions)
    assert listener.fractions[-1] == 1.0


@pytest.mark.parametrize("name", ["wan-both", "ltx"])
def test_image_is_the_first_frame_and_long_videos_are_chunked(
    video_engine: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    task = Task("pred_1", "video-image", {**BASE, "duration": 0.75, "sound": True}, picture(tmp_path))
    result = video_engine(name).run(task, Listener(tmp_path))
    # Twice as many frames as these weights generate at once.
    assert len(decoded_frames(result)) == 18
    assert result.artifacts[0].path is not None
    with closing(AudioTrack(result.artifacts[0].path)) as voice:
        assert np.abs(voice.read(24_000)).max() > 0.01


def test_numbered_frames_are_kept_and_others_interpolated(
    video_engine: Callable[..., Any], tmp_path: Path
) -> None:
    request = {**BASE, "num_frames": 9, "frames_per_second": 16, "num_interpolated_frames": 2}
    task = Task("pred_1", "video-a", {**request, "interpolator_model": "film"}, picture(tmp_path))
    result = video_engine("ltx").run(task, Listener(tmp_path))
    assert len(decoded_frames(result)) == 8 * 3 + 1
    assert result.artifacts[0].info["fps"] == 48
    assert result.artifacts[0].path is not None
    with pytest.raises(NoAudioTrack):
        AudioTrack(result.artifacts[0].path)


def test_video_bytes_depend_only_on_the_seed(video_engine: Callable[..., Any], tmp_path: Path) -> None:
    results = []
    for number, seed in enumerate((7, 7, 8)):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        result = video_engine("wan").run(
            Task("pred_1", "video-c", {**SHORT, "seed": seed}), Listener(scratch)
        )
        results.append(result.artifacts[0].path.read_bytes())
    assert results[0] == results[1] != results[2]


def test_step_cache_reuses_results_of_similar_steps(video_engine: Callable[..., Any], tmp_path: Path) -> None:
    engine, ran, result = video_engine("wan-deep"), [], []
    last = engine.load().pipeline.transformer.blocks[-1]
    hook = last.attn1.register_forward_hook(lambda *_: ran.append(len(result)))
    for number, cached in enumerate((False, True, False)):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        request = {**SHORT, "num_inference_steps": 12, "guidance_scale": 4.0, "cache_accel": cached}
        result.append(decoded_frames(engine.run(Task("pred_1", "video-t2v", request), Listener(scratch))))
    hook.remove()
    # The first and third run call the model twice per step: for the prompt and for the negative prompt.
    assert [ran.count(number) for number in (0, 2)] == [24, 24]
    assert 2 <= ran.count(1) < 24
    assert np.array_equal(result[0], result[2])
    assert not np.array_equal(result[0], result[1])


def test_steps_and_guidance_follow_the_request(video_engine: Callable[..., Any], tmp_path: Path) -> None:
    results = []
    for number, more in enumerate(({}, {"num_inference_steps": 3}, {"guidance_scale": 9.0})):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        request = {**SHORT, "num_inference_steps": 2, "guidance_scale": 4.0, **more}
        results.append(
            decoded_frames(video_engine("wan").run(Task("pred_1", "video-t2v", request), Listener(scratch)))
        )
    assert not np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_text_to_video_ignores_an_image(video_engine: Callable[..., Any], tmp_path: Path) -> None:
    task = Task("pred_1", "video-t2v", {**SHORT, "by_words": True}, picture(tmp_path))
    assert len(decoded_frames(video_engine("wan").run(task, Listener(tmp_path)))) == 6


def test_text_to_video_weights_refuse_an_image(video_engine: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="do not support an input image"):
        video_engine("wan").run(Task("pred_1", "video-c", SHORT, picture(tmp_path)), Listener(tmp_path))
    with pytest.raises(EngineError, match=r"at most 0\.5625 seconds"):
        video_engine("wan").run(Task("pred_1", "video-c", {**BASE, "duration": 2}), Listener(tmp_path))


def test_canceled_run_ends_between_two_steps(video_engine: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(Canceled):
        video_engine("wan").run(Task("pred_1", "video-c", SHORT), Listener(tmp_path, cancel_at=0.3))


def test_image_model_is_refused_for_videos(
    video_engine: Callable[..., Any], weights: Any, tmp_path: Path
) -> None:
    from sixfold.engines.video.diffusers.engine import VideoDiffusersEngine  # noqa: PLC0415 - it needs torch

    weights.path("sd")
    engine = VideoDiffusersEngine(weights=str(weights.folder), source="sd", threads=1)
    with pytest.raises(EngineError, match="not a supported video pipeline"):
        engine.run(Task("pred_1", "video-c", SHORT), Listener(tmp_path))
