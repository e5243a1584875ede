"""Replay of graph outputs from the file alone: on embedded engines only."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.provenance import embed, signing
from sixfold.core.provenance import manifest as provenance_manifest
from sixfold.core.workflows import image_metadata
from tests.harness.cases import nightly_after
from tests.unit.cli.conftest import Server, inside

pytestmark = pytest.mark.slow  # each test starts programs
ORDERS = {
    "turbo-text-to-image": ("fox.png", "prompt=a red fox in snow", "seed=7", "width=96", "height=64"),
    "sound-effects": ("rain.mp3", "prompt=rain on a tin roof", "duration_seconds=1"),
    # Its node has no seed.
    "text-to-3d": ("chair.glb", "prompt=a chair"),
    # The image input of its node is the name of the bundled example.
    "image-upscale": ("larger.png",),
}


@pytest.fixture(scope="module")
def outputs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return one output file of each space."""
    folder = tmp_path_factory.mktemp("made")
    result: dict[str, Path] = {}
    for slug, (name, *words) in ORDERS.items():
        result[slug] = folder / name
        final_result = inside(server.folder, "run", f"space:{slug}", *words, "-o", str(result[slug]))
        assert final_result.status == 0, final_result.err
    return result


@pytest.mark.parametrize("slug", nightly_after(2, sorted(ORDERS)))
def test_output_of_a_space_is_replayed_to_the_byte(
    server: Server, outputs: Mapping[str, Path], slug: str, tmp_path: Path
) -> None:
    target = tmp_path / "again"
    result = inside(server.folder, "replay", str(outputs[slug]), "-o", str(target))
    assert (result.status, result.err) == (0, "")
    assert target.read_bytes() == outputs[slug].read_bytes()


def _picture(graph: Mapping[str, Any] | None, model: str, quality: str = "full") -> bytes:
    """Return a signed image of one pixel with the manifest of a graph."""
    body = b"IHDR" + bytes((0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0))
    plain = b"\x89PNG\r\n\x1a\n"
    for chunk in (body, b"IDAT" + zlib.compress(b"\0\0"), b"IEND"):
        plain += (len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4)
    manifest = provenance_manifest.Manifest(
        model=model, inputs={}, engine="graph", engine_version="1", quality=quality, prediction_id="pred_1"
    )
    return embed.embed(
        image_metadata.embed(plain, graph), "image/png", signing.Signer(bytes(32)).sign(manifest)
    )


SAVED = {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}}


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ({"class_type": "SomebodysOwnNode", "inputs": {}}, "node classes SomebodysOwnNode"),
        (
            {"class_type": "SixfoldTemplate", "inputs": {"template": "text-llm", "input": '{"prompt": "x"}'}},
            "No engine can serve text-llm",
        ),
        ({"class_type": "LoadImage", "inputs": {"image": "gone.png"}}, "gone.png"),
    ],
)
def test_replay_refuses_non_embedded_engines_by_name(
    tmp_path: Path, node: Mapping[str, Any], sentence: str
) -> None:
    path = tmp_path / "theirs.png"
    path.write_bytes(_picture({"1": node, "2": SAVED}, "comfyui-prompt"))
    result = inside(tmp_path / "nothing", "replay", str(path), "--check")
    assert result.status == 1
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1


def test_workflow_stored_in_the_image_is_replayed(tmp_path: Path) -> None:
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 255}},
        "2": SAVED,
    }
    path, target = tmp_path / "blue.png", tmp_path / "again.png"
    path.write_bytes(_picture(graph, "space:of-somebody"))
    result = inside(tmp_path / "nothing", "replay", str(path), "-o", str(target))
    # The graph does not generate the pixels of this file.
    assert result.status == 1
    assert "has different bytes" in result.err
    assert inside(tmp_path / "nothing", "replay", str(target), "--check").status == 0
    assert not (tmp_path / "nothing").exists()
    assert embed.extract(target.read_bytes()) == embed.extract(path.read_bytes())


def _node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


RAIN = _node("SixfoldSoundEffects", prompt="rain", duration_seconds=1, model="sound-effects")
IMPORTED = {
    "rain.mp3": {"1": RAIN, "2": _node("SaveAudioMP3", audio=["1", 0], filename_prefix="rain", quality="V0")},
    "rain.flac": {"1": RAIN, "2": _node("SaveAudio", audio=["1", 0], filename_prefix="rain")},
    "blue.mp4": {
        "1": _node("EmptyImage", width=64, height=64, batch_size=4, color=255),
        "2": _node("CreateVideo", images=["1", 0], fps=8),
        "3": _node("SaveVideo", video=["2", 0], filename_prefix="blue", format="mp4", codec="h264"),
    },
    "chair.glb": {"1": _node("SixfoldTextTo3D", prompt="a chair", model="text-to-3d")},
}


@pytest.fixture(scope="module")
def imported_folder(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    for name, graph in IMPORTED.items():
        file = folder / f"{name}.json"
        file.write_text(json.dumps(graph))
        result = inside(server.folder, "workflow", "run", str(file), "-o", str(folder / name))
        assert result.status == 0, result.err
    return folder


@pytest.mark.parametrize("name", nightly_after(1, IMPORTED))
def test_imported_workflow_output_is_replayed_on_its_server(
    server: Server, imported_folder: Path, name: str, tmp_path: Path
) -> None:
    target = tmp_path / "again"
    result = inside(server.folder, "replay", str(imported_folder / name), "-o", str(target))
    assert (result.status, result.err) == (0, "")
    assert target.read_bytes() == (imported_folder / name).read_bytes()


def test_audio_of_a_workflow_is_not_replayed_on_another_server(imported_folder: Path, tmp_path: Path) -> None:
    result = inside(tmp_path, "replay", str(imported_folder / "rain.mp3"), "--check")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert f"{tmp_path} has no record of the run" in result.err


def test_replay_of_an_image_without_its_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gone.png"
    path.write_bytes(_picture(None, "space:of-somebody"))
    result = inside(tmp_path / "nothing", "replay", str(path), "--check")
    assert result.status == 1
    assert "does not contain its graph" in result.err
