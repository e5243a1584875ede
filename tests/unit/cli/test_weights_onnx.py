"""`engines add` for models in one ONNX file: from a Hub on this machine, and from a file that lies here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub import LoopbackHub, serving
from tests.unit.cli.conftest import Commands
from tests.unit.engines import onnx_model, onnx_tiny

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")

LITE = "onnx-community/BiRefNet_lite-ONNX"  # what the table calls birefnet-lite


@pytest.fixture
def hub(tmp_path: Path, sixfold: Commands) -> Iterator[LoopbackHub]:
    """A Hub with the model that cuts pictures out, in two precisions."""
    folder = tmp_path / "hub" / LITE / "onnx"
    folder.mkdir(parents=True)
    onnx_model.write(folder / "model.onnx", (8.0, -4.0, -4.0), side=64)
    onnx_model.write(folder / "model_fp16.onnx", (0.0, 0.0, 0.0), side=64)
    (folder.parent / "README.md").write_text("A model.")
    with serving(tmp_path / "hub") as running:
        sixfold.folder.mkdir()
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{running.url}"\n')
        yield running


def test_a_model_of_one_file_is_fetched_tried_and_unlocks_pictures_and_films(
    sixfold: Commands, hub: LoopbackHub
) -> None:
    added = sixfold.ok("engines", "add", "matting")
    assert (added["repository"], added["licence"]) == (LITE, "MIT")
    folder = sixfold.folder / "weights" / "matting" / "birefnet-lite"
    record = json.loads((folder / "sixfold.json").read_text())
    assert set(record["files"]) == {"onnx/model.onnx", "README.md"}
    assert (record["like"], record["check"]["passed"]) == ("birefnet", True)
    assert (folder / "check.png").read_bytes().startswith(b"\x89PNG")
    rows = {row["engine"]: row for row in sixfold.ok("engines", "list")["engines"]}
    assert rows["weights-matting"]["ready"]
    assert rows["weights-film-frames"]["ready"]
    assert not rows["weights-film-matting"]["ready"]


def test_a_file_that_lies_here_is_taken_and_without_one_the_way_is_told(
    sixfold: Commands, hub: LoopbackHub, tmp_path: Path
) -> None:
    assert "not on the Hub" in sixfold.refused("engines", "add", "film-matting")
    file = onnx_tiny.recurrent(tmp_path / "rvm_tiny.onnx")
    added = sixfold.ok("engines", "add", "film-matting", "--model", "rvm", "--from", str(file))
    assert added["licence"] == "GPL-3.0"
    rows = {row["engine"]: row for row in sixfold.ok("engines", "list")["engines"]}
    assert rows["weights-film-matting"]["ready"]
