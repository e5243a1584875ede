"""Adapter training: the loss falls, and the adapter changes the images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Canceled, EngineError, Result, Task, UnusableInput
from tests.unit.engines.diffusers.conftest import Listener, Weights, max_difference, open_engine, pixels, task

pytestmark = pytest.mark.weights


def trainer(weights: Weights, name: str = "sd", **inputs: Any) -> Any:
    """An engine that trains a tiny pipeline."""
    from sixfold.engines.image.diffusers.training import TrainingEngine  # noqa: PLC0415 - it needs torch

    weights.path(name)
    usual = {"steps": 12, "rate": 3e-3, "rank": 4, "threads": 1}
    return TrainingEngine(**{"weights": weights.folder, "source": name, **usual, **inputs})


def training_task(folder: Path, count: int = 2) -> Task:
    files: dict[str, Path] = {}
    for number in range(count):
        shade = np.zeros((40, 48, 3), np.uint8)
        shade[:, : 20 + 4 * number] = (240, 80, 10)
        files[f"images.{number:03}"] = path = folder / f"{number}.png"
        Image.fromarray(shade).save(path)
    return Task("pred_1", "training", {"name": "glow", "base": "ra2", "seed": 3}, files)


def train(weights: Weights, folder: Path, name: str = "sd", **inputs: Any) -> tuple[Result, Listener]:
    """Train, and return the result and the log."""
    (folder / "scratch").mkdir()
    listener = Listener(folder / "scratch")
    return trainer(weights, name, **inputs).run(training_task(folder), listener), listener


@pytest.mark.parametrize("name", ["sd", "sdxl"])
def test_loss_falls_and_the_adapter_changes_the_image(weights: Weights, tmp_path: Path, name: str) -> None:
    result, listener = train(weights, tmp_path, name)
    losses = result.data["loss"]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    assert result.data["name"] == "glow"
    assert result.data["steps"] == 12
    assert listener.fractions == sorted(listener.fractions)
    # The names of stored files do not state their format.
    adapter = tmp_path / "adapter"
    (result.artifacts[0].path or Path()).rename(adapter)
    painter = open_engine(weights, name)
    plain = painter.run(task("custom:glow"), Listener())
    inputs = {"loras": [{"file": "adapter"}], "base": "ra2"}
    dressed = painter.run(task("custom:glow", {"adapter": adapter}, **inputs), Listener())
    assert max_difference(pixels(plain), pixels(dressed)) > 0
    second_result = painter.run(task("custom:glow"), Listener())
    assert max_difference(pixels(plain), pixels(second_result)) == 0


@pytest.mark.parametrize(("name", "readers"), [("sd", 1), ("sdxl", 2)])
def test_text_encoder_training_changes_the_image(
    weights: Weights, tmp_path: Path, name: str, readers: int
) -> None:
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - they need torch

    result, _ = train(weights, tmp_path, name, text_encoder=True, steps=6)
    assert result.data["loss"][-1] < result.data["loss"][0]
    layers = load_file(result.artifacts[0].path or Path())
    reading = {key: value for key, value in layers.items() if key.startswith("text_encoder")}
    assert {key.partition(".")[0] for key in layers} >= {"unet", "text_encoder"}
    raised = [key for key, value in reading.items() if ".up." in key and value.abs().max() > 0]
    assert len({key.partition(".")[0] for key in raised}) == readers  # SDXL leaves the last layer of one out
    # The layers of the text encoder alone, in a separate file.
    adapter = tmp_path / "reading"
    save_file(reading, adapter)
    painter = open_engine(weights, name)
    plain = painter.run(task("custom:glow"), Listener())
    inputs = {"loras": [{"file": "reading"}], "base": "ra2"}
    dressed = painter.run(task("custom:glow", {"reading": adapter}, **inputs), Listener())
    assert max_difference(pixels(plain), pixels(dressed)) > 0


def test_equal_training_inputs_give_an_equal_adapter(weights: Weights, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    results = [train(weights, tmp_path / name, steps=2)[0] for name in ("one", "two")]
    first, second = [(result.artifacts[0].path or Path()).read_bytes() for result in results]
    assert first == second


def test_canceled_training_stops(weights: Weights, tmp_path: Path) -> None:
    with pytest.raises(Canceled):
        trainer(weights).run(training_task(tmp_path), Listener(tmp_path, cancel_at=0.3))


def test_unsupported_training_is_refused_with_a_reason(weights: Weights, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="FluxPipeline cannot be trained"):
        trainer(weights, "flux").run(training_task(tmp_path), Listener(tmp_path))
    with pytest.raises(UnusableInput, match="at least one image"):
        trainer(weights).run(training_task(tmp_path, 0), Listener(tmp_path))
