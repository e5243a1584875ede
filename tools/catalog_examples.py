"""Generate the example outputs of the catalog's cards; part of `make gallery`.

    python tools/catalog_examples.py [--all] [MODEL …]

Without `--all`, an example is generated only if it is missing, or if the engine's version or the inputs
changed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sixfold.app import bootstrap
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts import accounts
from sixfold.core.accounts.keys import Principal
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.settings import Settings
from sixfold.ui.catalog import example_outputs
from tools import thumbnails

WORKFLOWS = Path("src/sixfold/data/workflows")
_WAIT_SECONDS = 900
_STRIP = 96  # number of colors that represent a vector on its card
_ORDER = ["embedded", "weights", "comfyui", "provider"]
_REFERENCE = re.compile(r"\$([a-z0-9:-]+)")
_KINDS = ("image/", "video/", "audio/", "model/")


class Studio:
    """Runs models in a temporary installation, and records the URL of each model's first output file."""

    def __init__(self, application: bootstrap.Application, owner: Principal, folder: Path) -> None:
        self._application = application
        self._owner = owner
        self._folder = folder
        self._examples = app_catalog.examples()
        self._addresses: dict[str, str] = {}

    @property
    def examples(self) -> Mapping[str, Mapping[str, Any]]:
        """The inputs of each example, by model."""
        return self._examples

    async def run(self, name: str) -> Prediction:
        """Run a model, after the models whose outputs its inputs refer to."""
        inputs = {key: await self._resolve(value) for key, value in self._examples[name].items()}
        order = PredictionRequest(self._owner, name, inputs, "gallery", "req_gallery", charged=False)
        predictions = self._application.predictions
        result = await predictions.wait(await predictions.submit(order), _WAIT_SECONDS)
        if result.output is None:
            raise SystemExit(f"{name} failed: {result.error}")
        if result.output.files:
            self._addresses[name] = (
                self._application.settings.base_url + "/media/" + result.output.files[0].name
            )
        return result

    async def bytes_of(self, file: OutputFile) -> bytes:
        return await self._application.blobs.get(file.blob)

    async def _resolve(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.startswith("{"):
            return await self._project(value)
        if value.startswith("$"):
            return await self._address(value[1:])
        return await self._upload(value[1:]) if value.startswith("@") else value

    async def _project(self, text: str) -> Any:
        for name in ("ra1", "ra2"):
            if f'"${name}"' in text:
                text = text.replace(f'"${name}"', json.dumps(await self._address(name)))
        return json.loads(text)

    async def _address(self, name: str) -> str:
        if name not in self._addresses:
            if name == "spin":
                self._addresses[name] = await self._store("spin.mp4", _spin(), "video/mp4")
            else:
                await self.run(name)
        return self._addresses[name]

    async def _upload(self, name: str) -> str:
        if name not in self._addresses:
            draw = _DRAWINGS.get(name)
            data = (WORKFLOWS / name).read_bytes() if draw is None else draw()
            kind = "audio/wav" if draw is None else "image/png"
            self._addresses[name] = await self._store(name, data, kind)
        return self._addresses[name]

    async def _store(self, name: str, data: bytes, content_type: str) -> str:
        path = self._folder / name
        path.write_bytes(data)
        media = await self._application.media.upload(self._owner.tenant, path, content_type)
        return f"{self._application.settings.base_url}/media/{media.name}"


def _mask() -> bytes:
    """Return a mask of the boat in a 1024 × 576 image."""
    mask = np.zeros((576, 1024), np.uint8)
    cv2.ellipse(mask, (650, 355), (125, 150), 0, 0, 360, 255, -1)
    return cv2.imencode(".png", mask)[1].tobytes()


def _subject() -> bytes:
    """Return an image of a red mug in front of a plain wall, for cut-outs and 3D models."""
    wall = np.linspace(226, 196, 420)[:, None, None] * np.array([0.98, 1.0, 1.0])
    image = np.broadcast_to(wall, (420, 420, 3)).astype(np.uint8).copy()
    red, dark, light = (52, 58, 196), (38, 40, 150), (120, 124, 226)
    cv2.ellipse(image, (286, 222), (58, 66), 0, 0, 360, dark, 26, cv2.LINE_AA)
    cv2.rectangle(image, (120, 130), (270, 318), red, -1)
    cv2.ellipse(image, (195, 318), (75, 24), 0, 0, 360, red, -1, cv2.LINE_AA)
    cv2.rectangle(image, (120, 130), (146, 318), light, -1)
    cv2.rectangle(image, (246, 130), (270, 318), dark, -1)
    cv2.ellipse(image, (195, 130), (75, 24), 0, 0, 360, (226, 232, 240), -1, cv2.LINE_AA)
    cv2.ellipse(image, (195, 133), (62, 17), 0, 0, 360, (30, 44, 70), -1, cv2.LINE_AA)
    return cv2.imencode(".png", image)[1].tobytes()


_DRAWINGS = {"mask": _mask, "subject": _subject}


def _spin() -> bytes:
    """Return a short video of a moving subject in front of a plain wall."""
    av = thumbnails.av
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as target:
        stream: Any = target.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        for at in range(24):
            rgb = np.full((180, 320, 3), (196, 204, 210), np.uint8)
            cv2.circle(rgb, (100 + 5 * at, 96), 46, (190, 60, 44), -1, cv2.LINE_AA)
            cv2.circle(rgb, (86 + 5 * at, 80), 12, (236, 150, 130), -1, cv2.LINE_AA)
            target.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        target.mux(stream.encode())
    return file.getvalue()


async def run_example(studio: Studio, name: str) -> dict[str, Any]:
    """Run a model, write the files of its card, and return its entry in the list."""
    result = await studio.run(name)
    assert result.output is not None  # noqa: S101 - `run` exits without an output
    files = sorted(result.output.files, key=lambda file: not file.content_type.startswith(_KINDS))
    response: dict[str, Any] = {"engine": result.engine, "version": result.engine_version}
    response["digest"], response["inputs"] = inputs_digest(studio, name), literal_inputs(studio, name)
    stem = name.replace(":", "-")
    if not files:
        return {**response, **_data_entry(stem, result.output.data)}
    return {**response, **_file_entry(stem, files[0].content_type, await studio.bytes_of(files[0]))}


def literal_inputs(studio: Studio, name: str) -> dict[str, Any]:
    """Return the inputs with literal values, without references to files."""
    inputs = studio.examples[name].items()
    return {key: value for key, value in inputs if not (isinstance(value, str) and value[:1] in "$@{")}


def inputs_digest(studio: Studio, name: str) -> str:
    """Return a short digest of all inputs of an example, including the inputs of models that it refers to."""
    text = json.dumps(studio.examples[name], sort_keys=True)
    before = [
        inputs_digest(studio, other)
        for other in sorted(set(_REFERENCE.findall(text)) & studio.examples.keys())
    ]
    return hashlib.sha256("".join((text, *before)).encode()).hexdigest()[:12]


def _data_entry(stem: str, data: Mapping[str, Any]) -> dict[str, Any]:
    value = data.get("value")
    if isinstance(value, list) and value and "joints" in value[0]:
        return {"kind": "image", "files": _write_files(stem, webp=thumbnails.poses(value))}
    if "mean" in data:
        return {"kind": "text", "files": [], "line": [round(float(y), 2) for y in data["mean"]]}
    if "embeddings" in data:
        return {"kind": "text", "files": [], "strip": _strip(data["embeddings"][0])}
    return {"kind": "text", "files": [], "text": thumbnails.words(data)}


def _strip(vector: list[float]) -> list[float]:
    """Return the strongest number of each part of a vector, relative to the strongest of all."""
    parts = np.array_split(np.asarray(vector, dtype=float), _STRIP)
    strongest = [float(part[np.abs(part).argmax()]) for part in parts]
    most = max(abs(each) for each in strongest) or 1.0
    return [round(each / most, 2) for each in strongest]


def _file_entry(stem: str, content_type: str, data: bytes) -> dict[str, Any]:
    if content_type.startswith("video/"):
        still, clip = thumbnails.video(data)
        return {"kind": "video", "files": _write_files(stem, webp=still, webm=clip)}
    if content_type.startswith("audio/"):
        clip, peaks = thumbnails.audio(data)
        return {"kind": "audio", "files": _write_files(stem, mp3=clip), "peaks": peaks}
    if not content_type.startswith(_KINDS):
        return {
            "kind": "text",
            "files": [],
            "text": thumbnails.words({"text": data.decode("utf-8", "replace")}),
        }
    converters = {"image/svg+xml": thumbnails.drawing, "model/gltf-binary": thumbnails.model}
    if converter := converters.get(content_type):
        return {"kind": "image", "files": _write_files(stem, webp=converter(data))}
    files = _write_files(stem, webp=thumbnails.image(data))
    if large := thumbnails.large_image(data):
        files += _write_files(stem + example_outputs.LARGE, webp=large)
    return {"kind": "image", "files": files}


def _write_files(stem: str, **contents: bytes) -> list[str]:
    names: list[str] = []
    for suffix, data in contents.items():
        path = example_outputs.FOLDER / f"{stem}.{suffix}"
        path.write_bytes(data)
        names.append(path.name)
    return names


async def main() -> None:
    """Generate the stale examples and write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="generate every example again")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    example_outputs.FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), probe=False, tables={"engines": {"order": _ORDER}})
        async with bootstrap.running(bootstrap.build(settings)) as application:
            owner = await application.database.write(accounts.create("gallery@localhost", operator=True))
            studio = Studio(application, owner.owner, Path(folder))
            engines = application.catalog.engines()
            known = example_outputs.read()
            known = {
                name: {**row, "inputs": literal_inputs(studio, name)}
                for name, row in known.items()
                if name in studio.examples
            }
            _write_list(known)
            for name in arguments.models or studio.examples:
                if not (arguments.all or arguments.models or _stale(studio, engines, known, name)):
                    continue
                began = time.monotonic()
                known[name] = await run_example(studio, name)
                _write_list({each: known[each] for each in studio.examples if each in known})
                sizes = sum((example_outputs.FOLDER / file).stat().st_size for file in known[name]["files"])
                seconds = time.monotonic() - began
                print(f"{name:32}{known[name]['kind']:9}{sizes:7,} bytes {seconds:6.1f} s", flush=True)


def _stale(studio: Studio, engines: Mapping[str, Any], known: Mapping[str, Any], name: str) -> bool:
    result = known.get(name)
    if result is None or result["digest"] != inputs_digest(studio, name) or result["engine"] not in engines:
        return True
    present = all((example_outputs.FOLDER / file).is_file() for file in result["files"])
    return not present or engines[result["engine"]].version != result["version"]


def _write_list(known: Mapping[str, Any]) -> None:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in known.items())
    (example_outputs.FOLDER / example_outputs.LIST).write_text(f"{{\n{rows}\n}}\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
