"""`engines add chat`: a GGUF file from a Hub or from disk, and its messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sixfold.clients.chat.llama import files
from tests.fakes.huggingface import serving
from tests.unit.cli.conftest import Commands

pytest.importorskip("xllamacpp", reason="the extra `llama` is not installed")
tiny_gguf = pytest.importorskip("tests.fakes.tiny_gguf", reason="gguf is not installed")

REPOSITORY = "Qwen/Qwen2.5-1.5B-Instruct-GGUF"
FILE = "qwen2.5-1.5b-instruct-q4_k_m.gguf"


def test_only_the_selected_file_of_a_repository_is_downloaded(sixfold: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "hub" / REPOSITORY
    tiny_gguf.write(folder / FILE)
    tiny_gguf.write(folder / "another-q8_0.gguf")
    (folder / "README.md").write_text("A model.")
    with serving(tmp_path / "hub") as hub:
        sixfold.folder.mkdir()
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{hub.url}"\n')
        added = sixfold.ok("engines", "add", "chat", "--no-check")
    assert (added["name"], added["repository"], added["role"]) == ("qwen2.5-1.5b", REPOSITORY, "gguf")
    result = sixfold.folder / "weights" / "chat" / "qwen2.5-1.5b"
    assert set(json.loads((result / "sixfold.json").read_text())["files"]) == {FILE, "README.md"}
    assert list(files.added_models(result.parent)) == ["qwen2.5-1.5b"]


def test_model_that_outputs_no_readable_text_is_not_added(sixfold: Commands, tmp_path: Path) -> None:
    noise = tiny_gguf.write(tmp_path / "noise.gguf")
    assert "no readable text" in sixfold.error_of("engines", "add", "chat", "--from", str(noise))
    plain = tiny_gguf.write(tmp_path / "My Plain.gguf", letters=True)
    added = sixfold.ok("engines", "add", "chat", "--from", str(plain))
    assert added["name"] == "my-plain"
    record = json.loads((sixfold.folder / "weights" / "chat" / "my-plain" / "sixfold.json").read_text())
    assert record["check"]["passed"]
    assert record["check"]["by"].strip()


def test_further_files_of_a_model_are_not_listed_as_models(tmp_path: Path) -> None:
    for name in ("big-00001-of-00002", "big-00002-of-00002", "mmproj-f16", "small"):
        tiny_gguf.write(tmp_path / f"{name}.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"half")
    result = files.models_at(tmp_path)
    assert list(result) == ["big", "small"]
    assert {model.projector for model in result.values()} == {tmp_path / "mmproj-f16.gguf"}
    assert files.models_at(tmp_path / "broken.gguf") == {}
    assert files.models_at(tmp_path / "none.gguf") == {}
