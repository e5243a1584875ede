"""Container images from the shell: added, run, missing, removed; a real server and a real Podman."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import podman as podmans
from tests.podman import IMAGE, Podman
from tests.unit.cli.conftest import Starter, program

pytestmark = pytest.mark.slow  # each test starts programs


@pytest.fixture
def podman() -> Iterator[Podman]:
    with podmans.served() as made:
        yield made


def test_an_image_is_added_runs_is_missed_and_goes(podman: Podman, start: Starter, tmp_path: Path) -> None:
    folder, socket = tmp_path / "data", {"SIXFOLD_CONTAINER_SOCKET": str(podman.socket)}
    server = start(folder, **socket)
    options = ("--name", "probe", "--hardware", "gpu-16gb-a")
    added = program(folder, "model", "add", IMAGE, *options, "--json").json
    assert (added["name"], list(added["inputs"]), added["image"]) == ("probe", ["prompt"], IMAGE)
    listed = program(folder, "model", "list", "--json").json["models"]
    assert [(row["name"], row["image"], row["fault"]) for row in listed] == [("probe", IMAGE, None)]

    ran = program(folder, "run", "probe", "prompt=hello", "-o", str(tmp_path / "hi.txt"), "--json").json
    assert (ran["status"], ran["hardware"], ran["output"]["net"]) == ("succeeded", "gpu-16gb-a", "no")
    assert (tmp_path / "hi.txt").read_text() == "hi"
    assert server.stop() == 0
    assert podman.said("ps", "-aq") == "", "no container is left"

    podman.said("rmi", "--force", IMAGE)
    start(folder, **socket)
    refused = program(folder, "run", "probe", "prompt=hello")
    assert refused.status == 1
    assert f"see that it has the image {IMAGE}" in refused.err
    assert program(folder, "model", "remove", "probe").status == 0
    assert program(folder, "model", "list", "--json").json == {"models": []}
    assert program(folder, "model", "remove", "probe").status == 1
