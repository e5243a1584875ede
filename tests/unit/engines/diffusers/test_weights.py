"""Weights that are available, rejected, damaged, or too large for the memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import EngineError, Result
from tests.unit.engines.diffusers.conftest import (
    Listener,
    Weights,
    job,
    log_of,
    max_difference,
    open_engine,
    pixels,
    task,
)

pytestmark = pytest.mark.weights


# -- what is loaded --------------------------------------------------------------------------------


def test_a_folder_is_found_by_its_name_and_by_its_path(weights: Weights) -> None:
    by_name = open_engine(weights, "sd").run(task(), Listener())
    by_path = open_engine(weights, "sd", source=str(weights.folder / "sd"), weights=None).run(
        task(), Listener()
    )
    assert by_name.artifacts[0].data == by_path.artifacts[0].data


def test_single_file_checkpoint_equals_its_pipeline(weights: Weights, tmp_path: Path) -> None:
    from tests.unit.engines.diffusers import checkpoint  # noqa: PLC0415 - it needs torch

    file = checkpoint.write(weights.path("sd"), tmp_path / "one.safetensors")
    expected = pixels(open_engine(weights, "sd").run(task(), Listener()))
    result = open_engine(weights, "sd", source=str(file)).run(task(), Listener())
    assert max_difference(expected, pixels(result)) == 0
    # The result names the weights without their path.
    assert result.data["weights"] == "one"
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(EngineError, match=r"one\.safetensors requires the configuration of stable-"):
        open_engine(weights, "sd", source=str(file), hub_cache=tmp_path).run(task(), Listener())


def test_hub_cache_is_used_without_a_request(weights: Weights, tmp_path: Path) -> None:
    repository = tmp_path / "models--someone--tiny"
    shutil.copytree(weights.path("sd"), repository / "snapshots" / "abc123")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123")
    engine = open_engine(weights, "sd", source="someone/tiny", hub_cache=tmp_path)
    assert pixels(engine.run(task(), Listener())).shape == (64, 64, 3)
    with pytest.raises(EngineError, match=r"someone/other not found in the local Hub cache"):
        open_engine(weights, "sd", source="someone/other", hub_cache=tmp_path).run(task(), Listener())


def test_added_weights_are_assigned_to_models(weights: Weights, tmp_path: Path) -> None:
    for name, record in (
        ("general", {"added": "2026-01-01T00:00:00Z", "sampling": {"steps": 3, "guidance": 2}}),
        ("drawn", {"added": "2026-02-01T00:00:00Z", "serves": ["anime"]}),
        ("aaa", {"added": "2025-01-01T00:00:00Z", "role": "controlnet"}),
    ):
        shutil.copytree(weights.path("sd"), tmp_path / name)
        (tmp_path / name / "sixfold.json").write_text(json.dumps(record))
    engine = open_engine(weights, "sd", source="", weights=tmp_path, steps=None)
    result = engine.run(task("ra1"), Listener())
    assert (result.data["weights"], result.data["steps"]) == ("general", 3)
    assert engine.run(task("anime", steps=2), Listener()).data["weights"] == "drawn"


def test_a_pickle_is_refused(weights: Weights, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"unet/diffusion_pytorch_model.bin is a pickle.*only safetensors"):
        open_engine(weights, "pickled").run(task(), Listener())
    (tmp_path / "model.ckpt").write_bytes(b"x")
    with pytest.raises(EngineError, match=r"model.ckpt is a pickle"):
        open_engine(weights, "sd", source=str(tmp_path / "model.ckpt")).run(task(), Listener())


def test_missing_weights_file_is_named_in_the_error(weights: Weights, tmp_path: Path) -> None:
    broken = shutil.copytree(weights.path("sd"), tmp_path / "broken")
    (broken / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(EngineError, match="broken/vae does not contain weights"):
        open_engine(weights, "sd", source=str(broken)).run(task(), Listener())


def test_truncated_weights_file_is_named_in_the_error(weights: Weights, tmp_path: Path) -> None:
    broken = shutil.copytree(weights.path("sd"), tmp_path / "broken")
    file = broken / "unet" / "diffusion_pytorch_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(EngineError, match=r"diffusion_pytorch_model.safetensors is truncated"):
        open_engine(weights, "sd", source=str(broken)).run(task(), Listener())


def test_missing_weights_are_reported_with_their_command(weights: Weights) -> None:
    with pytest.raises(EngineError, match="Weights nowhere not found on this machine"):
        open_engine(weights, "sd", source="", models={"ra1": "nowhere"}).run(task("ra1"), Listener())


def test_missing_shard_of_the_index_is_refused(weights: Weights, tmp_path: Path) -> None:
    broken = shutil.copytree(weights.path("sd"), tmp_path / "broken")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (broken / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(EngineError, match=r"broken/unet is missing model-00001-of-00002.safetensors"):
        open_engine(weights, "sd", source=str(broken)).run(task(), Listener())


def test_replaced_weights_are_reloaded(weights: Weights, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(weights.path("sd"), folder)
    engine = open_engine(weights, "sd", source=str(folder))
    first = pixels(engine.run(task(), Listener()))
    folder.rename(tmp_path / "old")
    shutil.copytree(weights.path("other"), folder)
    assert max_difference(first, pixels(engine.run(task(), Listener()))) > 20
    shutil.rmtree(folder)
    with pytest.raises(EngineError, match="not found on this machine"):
        engine.run(task(), Listener())


def test_unknown_option_is_refused(weights: Weights) -> None:
    from sixfold.engines.image.diffusers.options import InvalidDiffusersOption  # noqa: PLC0415 - beside its use

    with pytest.raises(InvalidDiffusersOption, match="unknown option 'sauce'"):
        open_engine(weights, "sd", sauce="x")
    with pytest.raises(InvalidDiffusersOption, match="device must be one of"):
        open_engine(weights, "sd", device="tpu")


# -- what comes out broken -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "fault"),
    [("nan", "NaN values"), ("black", "a black image"), ("gray", "an image of a single color")],
)
def test_unusable_output_of_a_model_is_an_error(weights: Weights, source: str, fault: str) -> None:
    with pytest.raises(EngineError, match=f"The model returned {fault}"):
        open_engine(weights, source).run(task(), Listener())


def test_decoder_overflow_in_half_precision_retries_in_float32(weights: Weights) -> None:
    engine = open_engine(weights, "overflowing", dtype="float16")
    listener = Listener()
    result = pixels(engine.run(task(), listener))
    assert "decoding failed for 1 of 1 images; they were decoded again in float32" in listener.lines
    exact = pixels(open_engine(weights, "overflowing", dtype="float32").run(task(), Listener()))
    assert np.abs(result.astype(int) - exact).mean() < 4
    assert pixels(engine.run(task(), Listener())).tobytes() == result.tobytes()


def test_noise_is_distinguished_from_an_image() -> None:
    from sixfold.engines.image.diffusers import image_checks  # noqa: PLC0415 - the package's other parts need torch

    ramp = np.tile(np.arange(64), (64, 1))
    image = np.dstack([ramp, ramp.T, ramp])
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3))
    assert not image_checks.is_noise(image)
    assert image_checks.is_noise(noise)


# -- memory ----------------------------------------------------------------------------------------


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def test_least_recently_used_pipeline_is_unloaded(weights: Weights) -> None:
    for name in ("sd", "other", "sdxl"):
        weights.path(name)
    budget = _bytes(weights.folder / "sd") + _bytes(weights.folder / "sdxl") + 50_000
    engine = open_engine(weights, "sd", models={"anime": "other", "ra2": "sdxl"}, budget_bytes=budget)
    first = pixels(engine.run(task("ra1"), Listener()))
    for model, left in (
        ("ra2", ["sd", "sdxl"]),
        ("ra1", ["sdxl", "sd"]),
        ("anime", ["sd", "other"]),
        ("ra2", ["other", "sdxl"]),
    ):
        engine.run(task(model), Listener())
        assert [Path(key).name for key in engine.loaded] == left
    assert max_difference(first, pixels(engine.run(task("ra1"), Listener()))) == 0


def test_weights_above_the_memory_budget_state_both_sizes(weights: Weights) -> None:
    with pytest.raises(EngineError, match=r"need 4\.\d MiB of memory, but only 0\.\d MiB are free"):
        open_engine(weights, "sd", budget_bytes=200_000).run(task(), Listener())


def _bound(engine: Any, rows: int) -> None:
    """Limit the batch size of the network, as a small GPU does; guidance doubles it."""
    import torch  # noqa: PLC0415 - only here

    def before(_module: Any, arguments: tuple[Any, ...]) -> None:
        if arguments[0].shape[0] > 2 * rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    (loaded,) = engine.loaded.values()
    loaded.pipeline.unet.register_forward_pre_hook(before)


def test_batch_above_the_memory_is_halved_until_it_fits(weights: Weights) -> None:
    engine = open_engine(weights, "sd")
    alone = [pixels(engine.run(task(seed=seed), Listener())) for seed in range(4)]
    _bound(engine, 1)
    jobs = [job(seed=seed) for seed in range(4)]
    for result, expected in zip(engine.run_many(jobs), alone, strict=True):
        assert isinstance(result, Result)
        assert max_difference(pixels(result), expected) <= 2
    assert "out of memory with 4 images per batch; using 2 from now on" in log_of(jobs[0])


def test_image_above_the_memory_fails_with_one_sentence(weights: Weights) -> None:
    engine = open_engine(weights, "sd")
    _bound(engine, 0)
    listener = Listener()
    with pytest.raises(EngineError, match="too large for this machine's memory"):
        engine.run(task(), listener)
    assert any("decoding in tiles" in line for line in listener.lines)
