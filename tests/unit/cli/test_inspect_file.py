"""`sixfold inspect` and replay from a file's manifest alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from sixfold.core.provenance import embed
from tests.harness.cases import nightly_after
from tests.unit.cli.conftest import Server, Starter, inside

pytestmark = pytest.mark.slow  # each test starts programs
PROMPT = "prompt=a red fox in snow at dawn"
SMALL = ("width=96", "height=64")
DOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAC"
    "hwGA60e6kgAAAABJRU5ErkJggg=="
)
PROJECT = {
    "width": 96,
    "height": 64,
    "fps": 5,
    "tracks": [
        {"type": "text", "clips": [{"text": "Again", "duration": 0.6}]},
        {"type": "image", "clips": [{"url": DOT, "duration": 0.4, "width": 20, "height": 20}]},
    ],
}


@pytest.fixture(scope="module")
def outputs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    photo = folder / "photo.png"
    orders = {
        "ra2": (PROMPT, *SMALL, "seed=7", "-o", str(photo)),
        "anime": (PROMPT, "num_images=2", "-o", str(folder / "anime.png")),
        "create_image": (PROMPT, *SMALL, "format=jpeg", "-o", str(folder / "create_image.jpg")),
        "create_image_klein": (PROMPT, *SMALL, "-o", str(folder / "klein.webp")),
        "style-transfer": (
            f"source_image_url=@{photo}",
            "style_prompt=watercolor",
            "-o",
            f"{folder}/style.webp",
        ),
        "render": (f"project={json.dumps(PROJECT)}", "-o", f"{folder}/film.mp4"),
    }
    for model, words in orders.items():
        result = inside(server.folder, "run", model, *words)
        assert result.status == 0, result.err
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name", nightly_after(6, ["photo", "anime-1", "create_image", "klein", "style", "film", "anime-2"])
)
def test_replay_reproduces_the_file_byte_for_byte(
    server: Server, outputs: Mapping[str, Path], name: str, tmp_path: Path
) -> None:
    target = tmp_path / "again"
    result = inside(server.folder, "replay", str(outputs[name]), "-o", str(target))
    assert (result.status, result.err) == (0, "")
    assert target.read_bytes() == outputs[name].read_bytes()


def test_replay_check_writes_no_file(server: Server, outputs: Mapping[str, Path]) -> None:
    before = sorted(outputs["photo"].parent.iterdir())
    result = inside(server.folder, "replay", str(outputs["photo"]), "--check", "--json")
    assert result.json == {
        "file": str(outputs["photo"]),
        "identical": True,
        "output": None,
        "bytes": outputs["photo"].stat().st_size,
        "model": "ra2",
        "engine": "scene-painter",
    }
    assert sorted(outputs["photo"].parent.iterdir()) == before


def test_check_detects_an_edited_file(server: Server, outputs: Mapping[str, Path], tmp_path: Path) -> None:
    edited = tmp_path / "edited.png"
    edited.write_bytes(outputs["photo"].read_bytes() + b"more")
    result = inside(server.folder, "replay", str(edited), "--check")
    assert result.status == 1
    assert "has different bytes" in result.err


def test_replay_without_the_parent_names_the_missing_file(
    outputs: Mapping[str, Path], tmp_path: Path
) -> None:
    result = inside(tmp_path, "replay", str(outputs["style"]), "--check")
    assert result.status == 1
    assert "pass the file with --parent" in result.err
    result = inside(tmp_path, "replay", str(outputs["style"]), "--check", "--parent", str(outputs["photo"]))
    assert result.status == 0, result.err
    assert list(tmp_path.iterdir()) == []


def test_inspect_shows_the_manifest_and_its_signer(server: Server, outputs: Mapping[str, Path]) -> None:
    result = inside(server.folder, "inspect", str(outputs["photo"]), "--json").json
    assert result["signature"] == "ours"
    assert result["signed_by"].startswith("ed25519:")
    assert result["manifest"]["model"] == "ra2"
    assert result["manifest"]["seed"] == 7
    assert result["manifest"]["inputs"]["prompt"] == PROMPT.removeprefix("prompt=")
    parents = inside(server.folder, "inspect", str(outputs["style"]), "--json").json["manifest"]["parents"]
    assert len(parents) == 1
    assert "valid, signed by this server" in inside(server.folder, "inspect", str(outputs["photo"])).out


def test_manifest_of_another_server_is_foreign(
    outputs: Mapping[str, Path], start: Starter, tmp_path: Path
) -> None:
    start(tmp_path / "other").stop()
    for folder in (tmp_path / "other", tmp_path / "nothing"):
        assert inside(folder, "inspect", str(outputs["photo"]), "--json").json["signature"] == "foreign"
    assert not (tmp_path / "nothing").exists()


def test_a_forged_manifest_is_invalid_and_not_replayed(
    server: Server, outputs: Mapping[str, Path], tmp_path: Path
) -> None:
    data = outputs["photo"].read_bytes()
    text = embed.extract(data)
    assert text is not None
    forged = tmp_path / "forged.png"
    forged.write_bytes(embed.embed(data, "image/png", text.replace('"seed":7', '"seed":8')))
    assert inside(server.folder, "inspect", str(forged), "--json").json["signature"] == "invalid"
    result = inside(server.folder, "replay", str(forged), "--check")
    assert result.status == 1
    assert "changed after it was signed" in result.err


@pytest.mark.parametrize("command", ["inspect", "replay"])
def test_file_without_a_manifest_fails_with_one_sentence(
    server: Server, tmp_path: Path, command: str
) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("nothing")
    for path, sentence in (
        (plain, "does not contain a manifest"),
        (tmp_path, "not a folder"),
        (tmp_path / "x", "No such file"),
    ):
        result = inside(server.folder, command, str(path))
        assert result.status == 1
        assert sentence in result.err
        assert len(result.err.splitlines()) == 1
