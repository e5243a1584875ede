"""`engines add`, `list` and `remove` with tiny pipelines from a Hub on this machine."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.fakes.huggingface import COMMIT, LoopbackHub, serving
from tests.unit.cli.conftest import Commands

pytestmark = pytest.mark.weights

# The repository of sd-turbo in the table of weights.
TURBO = "stabilityai/sd-turbo"
TURBO_QUIETLY = ("engines", "add", "image", "--model", "sd-turbo", "--json")
UNET = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("diffusers", reason="the extra `weights` is not installed (make weights)")
    from tests.unit.engines.diffusers import tiny as pipelines  # noqa: PLC0415 - it needs torch

    return pipelines.stable_diffusion(tmp_path_factory.mktemp("tiny") / "sd")


@pytest.fixture
def hub(tmp_path: Path, tiny: Path, sixfold: Commands) -> Iterator[LoopbackHub]:
    """A Hub with a realistic repository: pickles, documents and images are in it too."""
    root = shutil.copytree(tiny, tmp_path / "hub" / TURBO)
    (root / "README.md").write_text("A model.")
    (root / "sample.jpg").write_bytes(b"a picture")
    (root / "unet" / "diffusion_pytorch_model.bin").write_bytes(b"a pickle")
    (root / "unet" / "diffusion_pytorch_model.non_ema.safetensors").write_bytes(b"other weights")
    (root / "sd_turbo.safetensors").write_bytes(b"the same in one file")
    with serving(tmp_path / "hub") as current_hub:
        sixfold.folder.mkdir()
        (sixfold.folder / "sixfold.toml").write_text(f'hub_url = "{current_hub.url}"\n')
        yield current_hub


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_weights_are_downloaded_verified_tested_and_recorded(sixfold: Commands, hub: LoopbackHub) -> None:
    added = sixfold.ok("engines", "add", "image", "--model", "sd-turbo")
    assert (added["repository"], added["revision"], added["commercial"]) == (TURBO, COMMIT, "conditions")
    folder = sixfold.folder / "weights" / "image" / "sd-turbo"
    record: dict[str, Any] = json.loads((folder / "sixfold.json").read_text())
    files = files_in(folder) - {"sixfold.json", "check.png"}
    assert set(record["files"]) == files
    assert {UNET, "model_index.json", "README.md", "scheduler/scheduler_config.json"} <= files
    assert not [name for name in files if name.endswith((".bin", ".jpg")) or "non_ema" in name]
    for name, facts in record["files"].items():
        assert facts["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert record["check"]["passed"]
    with Image.open(folder / "check.png") as image:
        assert image.size == (64, 64)
        assert np.asarray(image).std() > 10


def test_added_weights_are_listed_once_and_can_be_removed(sixfold: Commands, hub: LoopbackHub) -> None:
    sixfold.ok("engines", "add", "image", "--model", "sd-turbo", "--no-check")
    second_result = sixfold("engines", "add", "image", "--model", "sd-turbo", "--no-check")
    assert "already installed" in second_result.out
    document = sixfold.ok("engines", "list")
    (weights,) = document["weights"]
    assert (weights["name"], weights["licence"]) == ("sd-turbo", "Stability AI Community License")
    engine = next(row for row in document["engines"] if row["engine"] == "weights-image")
    assert (engine["ready"], engine["detail"]) == (True, "installed: sd-turbo")
    assert "sd-turbo" in sixfold("engines", "list").out
    sixfold.ok("engines", "remove", "image", "sd-turbo")
    assert sixfold.ok("engines", "list")["weights"] == []
    assert files_in(sixfold.folder / "weights") == set()
    assert "Weights sd-turbo of the family image" in sixfold.error_of(
        "engines", "remove", "image", "sd-turbo"
    )


def test_remove_of_a_family_removes_all_its_models(sixfold: Commands, hub: LoopbackHub) -> None:
    for name in ("sd-turbo", "other"):
        sixfold.ok("engines", "add", "image", "--model", "sd-turbo", "--name", name, "--no-check")
    assert sixfold.ok("engines", "remove", "image")["names"] == ["other", "sd-turbo"]
    assert sixfold.ok("engines", "list")["weights"] == []
    assert "Weights of the family image" in sixfold.error_of("engines", "remove", "image")
    assert "Weights of the family ../x" in sixfold.error_of("engines", "remove", "../x")


def test_text_output_shows_size_license_and_every_file(sixfold: Commands, hub: LoopbackHub) -> None:
    result = sixfold("engines", "add", "image", "--model", "sd-turbo")
    assert result.status == 0
    assert f"{TURBO} at {COMMIT[:12]}" in result.out
    assert "Stability AI Community License; commercial use under conditions" in result.out
    assert UNET in result.out
    assert "check.png is neither black nor noise" in result.out


def test_interrupted_download_is_resumed(sixfold: Commands, hub: LoopbackHub) -> None:
    hub.faults[UNET] = ["404"]
    assert "was not found on the Hub" in sixfold.error_of(
        "engines", "add", "image", "--model", "sd-turbo", "--json"
    )
    listed = sixfold.ok("engines", "list")
    assert listed["weights"] == []
    (unfinished,) = listed["unfinished_weights"]
    assert unfinished["bytes"] > 0
    assert unfinished["continue"] == "sixfold engines add image --model sd-turbo"
    assert unfinished["remove"] == "sixfold engines remove image sd-turbo"
    report = sixfold.ok("doctor")
    assert report["unfinished_weights"] == [unfinished]
    assert next(row for row in report["found"] if row["name"] == "weights")["found"] is None
    shown = sixfold("engines", "list").out
    assert "Not finished: image sd-turbo" in shown
    assert unfinished["continue"] in shown
    before = len(hub.requests)
    hub.faults[UNET] = [50_000]
    sixfold.ok("engines", "add", "image", "--model", "sd-turbo", "--no-check")
    requests = [path for path, _ in hub.requests[before:]]
    # The file was already downloaded.
    assert "text_encoder/model.safetensors" not in requests
    assert hub.ranges_of(UNET)[-1] == "bytes=50000-"
    assert sixfold.ok("engines", "list")["unfinished_weights"] == []


def test_file_with_a_wrong_hash_is_refused(sixfold: Commands, hub: LoopbackHub) -> None:
    hub.faults[UNET] = ["wrong"]
    assert "does not match the hash" in sixfold.error_of(
        "engines", "add", "image", "--model", "sd-turbo", "--json"
    )
    assert not (sixfold.folder / "weights" / "image" / "sd-turbo").exists()


def test_a_repository_with_pickles_only_is_refused(sixfold: Commands, hub: LoopbackHub) -> None:
    (hub.folder / TURBO / UNET).unlink()
    text = sixfold.error_of(*TURBO_QUIETLY)
    assert text == "unet does not contain safetensors; pickles can run code and are not downloaded."


def test_too_small_disk_is_refused_before_the_download(sixfold: Commands, hub: LoopbackHub) -> None:
    hub.claims[UNET] = {"lfs": {"oid": "0" * 64, "size": 10**15, "pointerSize": 130}}
    assert "but the disk has only" in sixfold.error_of(*TURBO_QUIETLY)
    assert hub.ranges_of(UNET) == []


def test_weights_that_produce_noise_are_not_added(sixfold: Commands, hub: LoopbackHub) -> None:
    from tests.unit.engines.diffusers import tiny as pipelines  # noqa: PLC0415 - it needs torch

    pipelines.scramble(hub.folder / TURBO)
    text = sixfold.error_of(*TURBO_QUIETLY)
    assert text == "Self-check failed: the weights produce noise; their components do not match."
    assert sixfold.ok("engines", "list")["weights"] == []


def test_repository_option_is_pinned_to_its_commit(sixfold: Commands, hub: LoopbackHub) -> None:
    shutil.copytree(hub.folder / TURBO, hub.folder / "someone" / "Own_Model")
    added = sixfold.ok("engines", "add", "image", "--model", "someone/Own_Model", "--no-check")
    assert (added["name"], added["revision"]) == ("own_model", COMMIT)
    assert added["licence"].startswith("unknown")


def test_local_folder_is_copied_without_its_pickles(sixfold: Commands, hub: LoopbackHub) -> None:
    added = sixfold.ok("engines", "add", "image", "--from", str(hub.folder / TURBO), "--name", "mine")
    assert (added["name"], added["repository"]) == ("mine", "")
    files = files_in(sixfold.folder / "weights" / "image" / "mine")
    assert UNET in files
    assert "unet/diffusion_pytorch_model.bin" not in files


def test_local_checkpoint_is_copied_with_its_configuration(
    sixfold: Commands, hub: LoopbackHub, tiny: Path, tmp_path: Path
) -> None:
    from tests.unit.engines.diffusers import checkpoint  # noqa: PLC0415 - it needs torch

    file = checkpoint.write(tiny, tmp_path / "Own.safetensors")
    added = sixfold.ok("engines", "add", "image", "--from", str(file))
    assert added["name"] == "own"
    files = files_in(sixfold.folder / "weights" / "image" / "own")
    assert {"Own.safetensors", "model_index.json", "check.png", "unet/config.json"} <= files


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("music",), "Model family music not found: use one of image"),
        (("image", "--model", "nothing"), "Model nothing not found: use one of z-image-turbo, sdxl"),
        (("imgae",), "Model family imgae not found: did you mean image?"),
        (("image", "--model", "sd-trbo"), "Model sd-trbo not found: did you mean sd-turbo?"),
        (("image", "--from", "nowhere"), "nowhere does not exist"),
        (("image", "--model", "sd-turbo", "--name", "../x"), "is not a valid name"),
    ],
)
def test_unknown_weights_are_refused_with_one_sentence(
    sixfold: Commands, hub: LoopbackHub, words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in sixfold.error_of("engines", "add", *words)


def test_local_pickle_file_is_refused(sixfold: Commands, hub: LoopbackHub, tmp_path: Path) -> None:
    file = tmp_path / "model.ckpt"
    file.write_bytes(b"x")
    assert "model.ckpt is a pickle" in sixfold.error_of("engines", "add", "image", "--from", str(file))
