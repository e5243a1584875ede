"""Engine options in the configuration are validated before the server starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.workers.policy import WorkerPolicy, worker_spec
from sixfold.settings import InvalidSetting, Settings


def catalog(folder: Path, **engines: Any) -> Any:
    configured = Settings(data_dir=folder, tables={"engines": engines})
    return app_catalog.catalog(configured, app_catalog.price_table(configured))


def test_valid_options_reach_their_engine(tmp_path: Path) -> None:
    wished: dict[str, Any] = {
        "weights-image": {"source": "/models/sdxl", "offload": "model"},
        "fal-image": {"base_url": "http://127.0.0.1:9"},
        "mine": {"like": "comfyui-image", "checkpoint": "sd_xl.safetensors"},
        "models": {"ra1": "mine"},
    }
    known = catalog(tmp_path, **wished)
    engines = known.engines()
    assert engines["weights-image"].options["source"] == "/models/sdxl"
    assert engines["fal-image"].options["base_url"] == "http://127.0.0.1:9"
    assert known["ra1"].engines[0].options["checkpoint"] == "sd_xl.safetensors"


def test_drawing_weights_are_trained_with_a_separate_limit(tmp_path: Path) -> None:
    drawn = {"source": "/models/sdxl", "models": {"anime": "/models/animagine"}, "steps": 30}
    engine = catalog(tmp_path, **{"weights-image": drawn}).engines()["weights-training"]
    assert (engine.options["source"], engine.options["models"]) == (drawn["source"], drawn["models"])
    # This option applies to images, not to training.
    assert "steps" not in engine.options
    assert engine.limit_seconds(600) == 7200
    policy = WorkerPolicy(1, 600.0, 30.0, 3, 3600.0, None, 0, tmp_path)
    assert worker_spec(engine, policy).cpu_seconds == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("weights-image", {"sorce": "/models/sdxl"}, r"\[engines.weights-image\].*'sorce'"),
        ("weights-image", {"device": "quantum"}, "device must be one of auto, cuda, mps, cpu"),
        ("fal-image", {"bas_url": "x"}, "fal-image. has invalid options.*'bas_url'"),
        ("comfyui-style", {"check": "x"}, "its options are url, task, checkpoint"),
        ("fal-image", {"route": "banana"}, "fal-image. has invalid options.*banana"),
        ("fal-image", {"limits": {"banana": 1}}, "fal-image. has invalid options.*banana"),
        ("weights-image", {"steps": -3}, "steps must be a number of at least 1"),
        ("scene-painter", {"brush": 2}, "'brush'; it has no options"),
    ],
)
def test_unknown_engine_option_is_an_invalid_setting(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidSetting, match=message):
        catalog(tmp_path, **{name: options})
