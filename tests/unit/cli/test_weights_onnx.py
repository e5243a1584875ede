"""`engines add` for single-file ONNX models, from a Hub on this machine or from disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sixfold.app import catalog as app_catalog
from tests.fakes.huggingface import LoopbackHub, serving
from tests.unit.cli.conftest import Commands
from tests.unit.engines import onnx_model, onnx_tiny
from tests.unit.engines.audio import test_stems
from tests.unit.engines.speech import test_moonshine as moonshine
from tests.unit.engines.speech import test_weights as speech_weights

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")

# The repository of birefnet-lite in the table of weights.
LITE = "onnx-community/BiRefNet_lite-ONNX"
TABLE = app_catalog.read_toml("weights.toml")

# The engine that each family makes ready, and two stand-ins: one that does its work, and one that does not.
TINY: dict[str, tuple[str, Callable[[Path], Path], Callable[[Path], Path]]] = {
    "depth": (
        "weights-depth",
        lambda path: onnx_model.write(path, (1.0, 0.0, 0.0), side="n"),
        lambda path: onnx_model.write(path, (0.0, 0.0, 0.0), side="n"),
    ),
    "upscale": (
        "weights-upscale",
        lambda path: onnx_tiny.enlarger(path, 4, 64),
        lambda path: onnx_tiny.enlarger(path, 4, 64, gain=-1.0),
    ),
    "inpaint": (
        "weights-inpaint",
        lambda path: onnx_tiny.filler(path, 64),
        lambda path: onnx_tiny.filler(path, 64, kind="Sub"),
    ),
    "stems": (
        "weights-stems",
        lambda path: test_stems.model(path, (0.1, 0.2, 0.3, 0.4)),
        lambda path: test_stems.model(path, (0.0, 0.0, 0.0, 0.0)),
    ),
    "matting-u2netp": (
        "weights-u2netp",
        lambda path: onnx_model.write(path, (8.0, -4.0, -4.0)),
        lambda path: onnx_model.write(path, (0.0, 0.0, 0.0)),
    ),
    "matting-birefnet-general": (
        "weights-birefnet-general",
        lambda path: onnx_model.write(path, (8.0, -4.0, -4.0)),
        lambda path: onnx_model.write(path, (0.0, 0.0, 0.0)),
    ),
}


@pytest.fixture
def hub(tmp_path: Path, sixfold: Commands) -> Iterator[LoopbackHub]:
    """A Hub with the model for cutouts of images, in two precisions."""
    folder = tmp_path / "hub" / LITE / "onnx"
    folder.mkdir(parents=True)
    onnx_model.write(folder / "model.onnx", (8.0, -4.0, -4.0), side=64)
    onnx_model.write(folder / "model_fp16.onnx", (0.0, 0.0, 0.0), side=64)
    (folder.parent / "README.md").write_text("A model.")
    with serving(tmp_path / "hub") as current_hub:
        sixfold.folder.mkdir()
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{current_hub.url}"\n')
        yield current_hub


def test_single_file_model_is_fetched_and_unlocks_its_engines(sixfold: Commands, hub: LoopbackHub) -> None:
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


def test_local_weights_are_used_and_missing_ones_explained(
    sixfold: Commands, hub: LoopbackHub, tmp_path: Path
) -> None:
    assert "not on the Hub" in sixfold.error_of("engines", "add", "film-matting")
    file = onnx_tiny.recurrent(tmp_path / "rvm_tiny.onnx")
    added = sixfold.ok("engines", "add", "film-matting", "--model", "rvm", "--from", str(file))
    assert added["licence"] == "GPL-3.0"
    rows = {row["engine"]: row for row in sixfold.ok("engines", "list")["engines"]}
    assert rows["weights-film-matting"]["ready"]


@pytest.mark.parametrize("family", TINY)
def test_each_family_model_is_fetched_and_tested_before_use(
    sixfold: Commands, tmp_path: Path, family: str
) -> None:
    engine, able, unable = TINY[family]
    ((name, row),) = TABLE[family].items()
    file = tmp_path / "hub" / row["repository"] / row["file"]
    file.parent.mkdir(parents=True, exist_ok=True)
    sixfold.folder.mkdir()
    with serving(tmp_path / "hub") as hub:
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{hub.url}"\n')
        unable(file)
        result = sixfold("engines", "add", family)
        assert (result.status, "Self-check failed" in result.err) == (1, True)
        rows = {each["engine"]: each for each in sixfold.ok("engines", "list")["engines"]}
        assert (rows[engine]["ready"], f"engines add {family}" in rows[engine]["unlock"]) == (False, True)
        able(file)
        assert sixfold.ok("engines", "add", family)["licence"] == row["licence"]
    folder = sixfold.folder / "weights" / family / name
    record = json.loads((folder / "sixfold.json").read_text())
    assert record["check"]["passed"]
    assert record.get("like") == row.get("like")
    assert (folder / "check.png").read_bytes().startswith(b"\x89PNG")
    rows = {each["engine"]: each for each in sixfold.ok("engines", "list")["engines"]}
    assert rows[engine]["ready"]


def test_voices_of_six_languages_are_fetched_and_tested(sixfold: Commands, tmp_path: Path) -> None:
    ((name, row),) = TABLE["speech"].items()
    folder = tmp_path / "hub" / row["repository"]
    for path in row["files"]:
        file_path = folder / path
        file_path.parent.mkdir(parents=True, exist_ok=True)
        speech_weights.voice_file(file_path.parent, file_path.stem, file_path.stem[:2])
    silent = folder / row["files"][0]
    sixfold.folder.mkdir()
    with serving(tmp_path / "hub") as hub:
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{hub.url}"\n')
        data = silent.read_bytes()
        silent.write_bytes(data[: len(data) // 2])
        result = sixfold("engines", "add", "speech")
        assert (result.status, "download it again" in result.err) == (1, True)
        silent.write_bytes(data)
        assert sixfold.ok("engines", "add", "speech")["licence"] == row["licence"]
    record = json.loads((sixfold.folder / "weights" / "speech" / name / "sixfold.json").read_text())
    assert set(record["files"]) == {*row["files"], *(f"{path}.json" for path in row["files"])}
    assert record["check"]["by"] == "voices speak de, en, es, fr, it, pt"
    rows = {each["engine"]: each for each in sixfold.ok("engines", "list")["engines"]}
    assert rows["weights-speech"]["ready"]


def test_whisper_and_moonshine_are_added_and_served(sixfold: Commands, tmp_path: Path) -> None:
    row = TABLE["listening"]["whisper-small"]
    folder = tmp_path / "hub" / row["repository"]
    folder.mkdir(parents=True)
    for name in (
        "model.bin",
        "config.json",
        "tokenizer.json",
        "vocabulary.txt",
        "README.md",
        ".gitattributes",
    ):
        (folder / name).write_text(name)
    source = moonshine.model(tmp_path / "own", moonshine.SPOKEN)
    for name in TABLE["listening-english"]["moonshine-tiny"]["files"]:
        if name.endswith(".ort"):
            (source / name).write_bytes((source / name.replace(".ort", ".onnx")).read_bytes())
    sixfold.folder.mkdir()
    with serving(tmp_path / "hub") as hub:
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{hub.url}"\n')
        sixfold.ok("engines", "add", "listening", "--no-check")
    record = json.loads((sixfold.folder / "weights/listening/whisper-small/sixfold.json").read_text())
    assert set(record["files"]) == {"model.bin", "config.json", "tokenizer.json", "vocabulary.txt"}
    damaged = sixfold("engines", "add", "listening-english", "--from", str(source))
    assert (damaged.status, "download it again" in damaged.err) == (1, True)
    for name in ("encoder_model", "decoder_model_merged"):
        (source / f"{name}.ort").unlink()
    missing = sixfold("engines", "add", "listening-english", "--from", str(source))
    assert (missing.status, "encoder_model.ort not found" in missing.err) == (1, True)
