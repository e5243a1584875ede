"""A space of the real Gradio in a real container: a folder is imported, built and run from the shell."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.harness import gradio
from tests.harness import podman as podman_harness
from tests.harness.podman import Podman
from tests.unit.cli import conftest
from tests.unit.cli.conftest import Commands, Starter, program

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(600)]
BASE = "localhost/gradio-six"


@pytest.fixture
def podman(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Podman]:
    """Podman with an image in which Python starts and finds Gradio."""
    if not request.config.getoption("--spaces"):
        pytest.skip("takes a minute of two processors, which CI does not have: --spaces runs it")
    home, packed = gradio.base("6"), tmp_path / "root.tar"

    def prepare(podman: Podman) -> None:
        gradio.pack("6", packed)
        changes = [f"--change=ENV {line}" for line in (f"PYTHONHOME={home}", "PYTHONPATH=/packages")]
        podman.output_of("import", "-q", *changes, str(packed), BASE)
        packed.unlink()

    with podman_harness.running_service(prepare) as made:
        yield made


@pytest.mark.parametrize("named", ["./nowhere", "/nowhere/at/all"])
def test_missing_folder_is_named_in_the_error(sixfold: Commands, named: str) -> None:
    assert sixfold.error_of("space", "import", named) == f"Folder {Path(named)} does not exist."


def test_gradio_folder_runs_in_a_container_with_files(
    podman: Podman, start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "START_SECONDS", 240)  # Gradio takes a while to start, twice
    folder, space, image = tmp_path / "data", tmp_path / "painter", tmp_path / "grey.png"
    shutil.copytree(gradio.APPLICATION.parent, space, ignore=shutil.ignore_patterns("__pycache__"))
    (space / "README.md").write_text("---\napp_file: space.py\n---\n")
    Image.new("RGB", (40, 20), (50, 50, 50)).save(image)
    where = {"SIXFOLD_CONTAINER_SOCKET": str(podman.socket), "SIXFOLD_SPACE_BASE_IMAGE": BASE}
    server = start(folder, **where)

    added = program(folder, "space", "import", str(space), "--run", "container", "--json")
    assert added.status == 0, added.err
    assert (added.json["name"], added.json["inputs"]["picture"]["type"]) == ("local-painter", "image")
    assert podman.output_of("ps", "-aq") == "", "the container that described its inputs has ended"
    words = ("words=a fox", f"picture=@{image}", "-o", str(tmp_path / "made.png"))
    ran = program(folder, "run", "local-painter", *words, "--json")
    assert ran.status == 0, ran.err
    assert ran.json["status"] == "succeeded", ran.json
    assert ran.json["logs"].splitlines()[-2:] == ["mixing", "painting"]
    with Image.open(tmp_path / "made.png") as result:
        assert np.asarray(result.convert("RGB"))[0, :7, 0].tolist() == [5, 3, 50, 0, 0, 0, 50]
    assert podman.output_of("ps", "-q"), "it stays until it has been idle"
    assert server.stop() == 0
    assert podman.output_of("ps", "-aq") == "", "no container is left"
