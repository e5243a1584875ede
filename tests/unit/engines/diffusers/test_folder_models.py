"""Each folder of weights as a separate model: its row, its weights and its LoRAs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.catalog import models as catalog_models
from sixfold.engines.image.diffusers import folder_models, options, task_parser
from tests.unit.engines.diffusers.conftest import Listener, Weights, task


def write_record(folder: Path, **record: Any) -> None:
    folder.mkdir(parents=True)
    (folder / "sixfold.json").write_text(json.dumps(record))


def test_folders_of_pipelines_and_plain_names_are_listed(tmp_path: Path) -> None:
    write_record(tmp_path / "sdxl")
    write_record(tmp_path / "canny", role="control")
    write_record(tmp_path / "odd name")
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / "model_index.json").write_text("{}")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sixfold.json").write_text("[")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loras").mkdir()
    for name in ("ink", "b;c"):
        (tmp_path / "loras" / f"{name}.safetensors").touch()
    assert folder_models.read(tmp_path) == (("copied", "sdxl"), ("ink",))
    assert folder_models.read(tmp_path / "missing") == ((), ())


def test_task_uses_the_folder_and_the_loras_of_its_model(tmp_path: Path) -> None:
    document = folder_models.document(("sdxl",), ("ink",))
    row = document["models"]["diffusers/sdxl"]
    engine = {"factory": "a:B", "version": "1", "quality": "full", "kind": "weights", "concurrency": 1}
    engines = {"weights-image": {**engine, "idle_seconds": 1, "unlock": ""}}
    model = catalog_models.parse_custom(
        {"models": {"diffusers/sdxl": {**row, "price": "container-time"}}, "engines": engines},
        catalog_models.Catalog({}, {}),  # pyright: ignore[reportArgumentType] - no price is looked up
        "diffusers/sdxl",
    )
    values = {"prompt": "a", "size": "512x256", "cfg": 4, "steps": 9, "seed": 1}
    inputs = model.for_engine(model.check(values))
    recipe = task_parser.recipe_of(task(**inputs), options.parse({"weights": str(tmp_path)}))
    assert (recipe.source, recipe.size, recipe.steps, recipe.guidance) == ("sdxl", (512, 256), 9, 4)
    assert list(folder_models.adapters(["ink:0.5"])) == [("ink.safetensors", 0.5)]


@pytest.mark.weights
def test_engine_makes_an_image_with_the_named_folder(engine: Any, weights: Weights) -> None:
    weights.path("other")
    inputs: Any = {folder_models.FOLDER: "other"}
    result = engine.run(task(width=64, height=64, **inputs), Listener())
    assert result.data["weights"] == "other"
