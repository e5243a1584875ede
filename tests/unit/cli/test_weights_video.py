"""`engines add` for video models: downloaded from a Hub on this machine, and tested by a first video."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.fakes.huggingface import LoopbackHub, serving
from tests.unit.cli.conftest import Commands

pytestmark = pytest.mark.weights

REPOSITORIES = {"film-words": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "ltx": "Lightricks/LTX-Video"}


@pytest.fixture(scope="module")
def hub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny pipelines under the names of real ones."""
    pytest.importorskip("diffusers", reason="the extra `weights` is not installed (make weights)")
    from tests.unit.engines.diffusers import tiny_video_models  # noqa: PLC0415 - it needs torch

    root = tmp_path_factory.mktemp("hub")
    tiny_video_models.wan(root / REPOSITORIES["film-words"])
    tiny_video_models.ltx(root / REPOSITORIES["ltx"])
    for repository in REPOSITORIES.values():
        # Sixfold writes this file beside installed weights; repositories do not contain it.
        (root / repository / "sixfold.json").unlink()
        (root / repository / "assets").mkdir()
        (root / repository / "assets" / "sample.mp4").write_bytes(b"a film")
    return root


@pytest.fixture
def hub(hub_folder: Path, sixfold: Commands) -> Iterator[LoopbackHub]:
    with serving(hub_folder) as current_hub:
        sixfold.folder.mkdir()
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{current_hub.url}"\n')
        yield current_hub


def test_video_model_is_fetched_tested_and_unlocks_its_engine(sixfold: Commands, hub: LoopbackHub) -> None:
    added = sixfold.ok("engines", "add", "film-words")
    assert (added["repository"], added["licence"]) == (REPOSITORIES["film-words"], "Apache-2.0")
    folder = sixfold.folder / "weights" / "film-words" / "wan21-1b"
    record = json.loads((folder / "sixfold.json").read_text())
    assert "model_index.json" in record["files"]
    assert not [name for name in record["files"] if name.endswith(".mp4")]
    assert record["check"]["passed"]
    assert "WanPipeline on cpu" in record["check"]["by"]
    with Image.open(folder / "check.png") as image:
        assert image.width > image.height >= 64
        assert np.asarray(image).std() > 1
    rows = {row["engine"]: row for row in sixfold.ok("engines", "list")["engines"]}
    assert rows["weights-film-words"]["ready"]
    assert not rows["weights-film"]["ready"]


def test_video_weights_that_produce_noise_are_not_added(sixfold: Commands, hub: LoopbackHub) -> None:
    assert "the weights produce noise" in sixfold.error_of(
        "engines", "add", "film", "--model", "ltx", "--json"
    )
    assert not (sixfold.folder / "weights" / "film" / "ltx").exists()
