"""The statuses of engines by what is installed and configured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.engines.availability import RECORD, EngineAvailability, Probe


def spec(name: str, kind: str, **facts: Any) -> EngineSpec:
    return EngineSpec(name, f"m:{name}", "1", "full", kind, 0, 60, "", **facts)


def standings(
    folder: Path,
    *specs: EngineSpec,
    keys: Mapping[str, str] | None = None,
    probes: Mapping[str, Probe] | None = None,
) -> EngineAvailability:
    known = dict(keys or {})
    return EngineAvailability(
        {spec.name: spec for spec in specs}, lambda name: known.get(name, ""), folder, probes or {}
    )


def test_embedded_engine_is_available_with_its_packages(tmp_path: Path) -> None:
    known = standings(
        tmp_path,
        spec("here", "embedded", packages=("numpy",)),
        spec("away", "embedded", packages=("no_such_package",)),
    )
    assert known("here").ready
    assert known("away") == EngineStatus(False, "the package no_such_package is not installed")
    assert not known("unheard of").ready


async def test_weights_are_available_once_their_record_exists(tmp_path: Path) -> None:
    known = standings(tmp_path, spec("own", "weights", family="image"))
    assert known("own") == EngineStatus(False, f"no weights are installed in {tmp_path / 'image'}")
    (tmp_path / "image" / "sd-turbo").mkdir(parents=True)
    await known.refresh()
    assert not known("own").ready, "a download that has not ended is no model"
    (tmp_path / "image" / "sd-turbo" / RECORD).write_text("{}")
    await known.refresh()
    assert known("own") == EngineStatus(True, "installed: sd-turbo")


def test_weights_at_another_path_are_available_once_found(tmp_path: Path) -> None:
    folder = tmp_path / "sdxl"
    own = spec("own", "weights", family="image", options={"source": str(folder)})
    missing = standings(tmp_path, own)("own")
    assert not missing.ready
    assert "not found on this machine" in missing.detail
    folder.mkdir()
    (folder / "model_index.json").write_text('{"_class_name": "StableDiffusionPipeline"}')
    assert standings(tmp_path, own)("own") == EngineStatus(True, f"configured: {folder}")


def test_provider_is_available_with_its_key(tmp_path: Path) -> None:
    fal, other = spec("fal", "provider", setting="fal_key"), spec("o", "provider", setting="openai_api_key")
    known = standings(tmp_path, fal, other, keys={"fal_key": "secret"})
    assert known("fal") == EngineStatus(True, "FAL_KEY is set")
    assert known("o") == EngineStatus(False, "OPENAI_API_KEY is not set")


def test_configured_provider_server_counts_as_available(tmp_path: Path) -> None:
    own = spec("own", "provider", setting="openai_api_key", options={"base_url": "http://10.0.0.7:8080/v1"})
    assert standings(tmp_path, own)("own") == EngineStatus(True, "configured: http://10.0.0.7:8080/v1")


async def test_model_server_is_available_after_its_first_response(tmp_path: Path) -> None:
    answers = {"now": EngineStatus(True, "at http://127.0.0.1:8188")}

    async def ask(_spec: EngineSpec) -> EngineStatus:
        return answers["now"]

    known = standings(tmp_path, spec("comfy", "comfyui"), probes={"comfyui": ask})
    assert not known("comfy").ready
    await known.refresh()
    assert known("comfy").ready
    answers["now"] = EngineStatus(False, "nothing answers")
    await known.refresh()
    assert known("comfy") == EngineStatus(False, "nothing answers")


WITHOUT_OPENCV = """
import sys
sys.modules["cv2"] = None
import io
from pathlib import Path
from PIL import Image
from sixfold import import_string
from sixfold.app import catalog
from sixfold.engines.providers import image_io

for name, engine in catalog.models_document()["engines"].items():
    if engine["kind"] == "provider" and "cv2" not in engine.get("packages", ()):
        import_string.load(engine["factory"])
        print(name)
Image.new("RGBA", (40, 30), (1, 2, 3, 99)).save("image.png")
assert image_io.prepare_upload(Path("image.png")).content_type == "image/png"
"""


def test_providers_describe_images_without_opencv(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_OPENCV]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert {"openai-caption", "anthropic-caption", "openai-image"} <= set(result.stdout.split())
