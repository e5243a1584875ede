"""Commands for images and spaces: added, run, missing, removed; with a real server and Podman."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import podman as podman_harness
from tests.harness.podman import IMAGE, Podman
from tests.unit.cli.conftest import Starter, inside

pytestmark = [pytest.mark.nightly, pytest.mark.slow]  # each test starts programs


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with podman_harness.running_service() as result:
        yield result


def test_image_model_is_added_run_reported_missing_and_removed(
    podman: Podman, start: Starter, tmp_path: Path
) -> None:
    folder, socket = tmp_path / "data", {"SIXFOLD_CONTAINER_SOCKET": str(podman.socket)}
    server = start(folder, **socket)
    options = ("--name", "probe", "--hardware", "gpu-16gb-a")
    added = inside(folder, "model", "add", IMAGE, *options, "--json").json
    assert (added["name"], list(added["inputs"]), added["image"]) == ("probe", ["prompt"], IMAGE)
    models = inside(folder, "model", "list", "--json").json["models"]
    assert [(row["name"], row["image"], row["fault"]) for row in models] == [("probe", IMAGE, None)]

    ran = inside(folder, "run", "probe", "prompt=hello", "-o", str(tmp_path / "hi.txt"), "--json").json
    assert (ran["status"], ran["hardware"], ran["output"]["net"]) == ("succeeded", "gpu-16gb-a", "no")
    assert (tmp_path / "hi.txt").read_text() == "hi"
    assert server.stop() == 0
    assert podman.output_of("ps", "-aq") == "", "no container is left"

    podman.output_of("rmi", "--force", IMAGE)
    start(folder, **socket)
    result = inside(folder, "run", "probe", "prompt=hello")
    assert result.status == 1
    assert f"`docker pull {IMAGE}`" in result.err
    assert inside(folder, "model", "remove", "probe").status == 0
    assert inside(folder, "model", "list", "--json").json == {"models": []}
    assert inside(folder, "model", "remove", "probe").status == 1


def test_folder_is_built_run_isolated_and_removed(podman: Podman, start: Starter, tmp_path: Path) -> None:
    folder, space = tmp_path / "data", tmp_path / "Probe Space"
    space.mkdir()
    source = Path(__file__).parents[2] / "fakes" / "gradio.c"
    subprocess.run(["gcc", "-static", "-Os", "-w", source, "-o", space / "space"], check=True)
    (space / "Dockerfile").write_text('FROM scratch\nCOPY space /space\nENTRYPOINT ["/space"]\n')
    server = start(folder, SIXFOLD_CONTAINER_SOCKET=str(podman.socket))

    added = inside(folder, "space", "import", str(space), "--json")
    assert added.status == 0, added.err
    assert (added.json["name"], list(added.json["inputs"])) == ("local-probe-space", ["words"])
    ran = inside(folder, "run", "local-probe-space", "words=hello", "--json").json
    assert (ran["status"], ran["output"]) == ("succeeded", "net no, root no"), ran
    (remaining,) = (folder / "spaces").iterdir()
    assert remaining.name in podman.output_of("images")
    (space / "Dockerfile").write_text("FROM scratch\nCOPY nothing /nothing\n")
    result = inside(folder, "space", "import", str(space))
    assert result.status == 1
    assert "cannot be built" in result.err
    assert server.stop() == 0
    assert podman.output_of("ps", "-aq") == "", "no container is left"


def test_other_files_are_refused_with_the_command_for_them(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    (tmp_path / "notes.txt").write_text("x")
    for name, meant in (("small.gguf", "engines add chat"), (".", "space import"), ("notes.txt", "FILE.py")):
        result = inside(tmp_path / "data", "model", "add", str(tmp_path / name))
        assert result.status == 1
        assert meant in result.err
