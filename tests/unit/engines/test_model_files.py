"""The search for the files of models in a folder of weights."""

from __future__ import annotations

from pathlib import Path

from sixfold.engines import model_files


def test_files_of_unfinished_installations_are_skipped(tmp_path: Path) -> None:
    for name in (
        "b/one.onnx",
        "a/two.onnx",
        ".unfinished-c/three.onnx",
        ".unfinished-old-a/two.onnx",
        "a/x.json",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert model_files.find(tmp_path, "*.onnx") == [tmp_path / "a/two.onnx", tmp_path / "b/one.onnx"]
    assert model_files.find(tmp_path / "b/one.onnx", "*.onnx") == [tmp_path / "b/one.onnx"]
    assert model_files.find(tmp_path / "missing", "*.onnx") == []


def test_a_folder_with_hidden_entries_only_has_no_weights(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-a").mkdir()
    assert not model_files.has_visible(tmp_path)
    (tmp_path / "a").mkdir()
    assert model_files.has_visible(tmp_path)
    assert not model_files.has_visible(tmp_path / "missing")
