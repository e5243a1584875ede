"""Make what the catalogue's cards show, with the product itself: `make gallery` runs it.

    python tools/catalog_examples.py [--all] [MODEL …]

Only what is missing, or was made by another version of its engine or from other inputs, is made anew.
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
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from sixfold.app import bootstrap
from sixfold.core.accounts import accounts
from sixfold.core.accounts.keys import Principal
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.settings import Settings
from sixfold.ui.catalog import example_outputs as specimens
from tools import thumbnails

INPUTS = Path("tools/specimens.toml")
EXAMPLES = Path("src/sixfold/data/spaces")
_WAIT_SECONDS = 900
_STRIP = 96  # the colors of a vector on its card
_ORDER = ["embedded", "weights", "comfyui", "provider"]
_NAMED = re.compile(r"\$([a-z0-9:-]+)")
_KINDS = ("image/", "video/", "audio/", "model/")


class Studio:
    """Runs models in a product of its own, and remembers the first file that each gave."""

    def __init__(self, product: bootstrap.Application, owner: Principal, folder: Path) -> None:
        self._product = product
        self._owner = owner
        self._folder = folder
        self._wanted: Mapping[str, Any] = tomllib.loads(INPUTS.read_text("utf-8"))
        self._addresses: dict[str, str] = {}

    @property
    def wanted(self) -> Mapping[str, Any]:
        """The inputs of each model's run."""
        return self._wanted

    async def run(self, name: str) -> Prediction:
        """One model's run, after those that it needs."""
        inputs = {key: await self._given(value) for key, value in self._wanted[name]["input"].items()}
        order = PredictionRequest(self._owner, name, inputs, "gallery", "req_gallery", charged=False)
        predictions = self._product.predictions
        result = await predictions.wait(await predictions.submit(order), _WAIT_SECONDS)
        if result.output is None:
            raise SystemExit(f"{name} was not made: {result.error}")
        if result.output.files:
            self._addresses[name] = self._product.settings.base_url + "/media/" + result.output.files[0].name
        return result

    async def bytes_of(self, file: OutputFile) -> bytes:
        """What a run gave."""
        return await self._product.blobs.get(file.blob)

    async def _given(self, value: Any) -> Any:
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
                self._addresses[name] = await self._kept("spin.mp4", _spin(), "video/mp4")
            else:
                await self.run(name)
        return self._addresses[name]

    async def _upload(self, name: str) -> str:
        if name not in self._addresses:
            drawn = _DRAWN.get(name)
            data = (EXAMPLES / name).read_bytes() if drawn is None else drawn()
            kind = "audio/wav" if drawn is None else "image/png"
            self._addresses[name] = await self._kept(name, data, kind)
        return self._addresses[name]

    async def _kept(self, name: str, data: bytes, content_type: str) -> str:
        path = self._folder / name
        path.write_bytes(data)
        remaining = await self._product.media.upload(self._owner.tenant, path, content_type)
        return f"{self._product.settings.base_url}/media/{remaining.name}"


def _mask() -> bytes:
    """White where the boat in a picture of 1024 by 576 is."""
    mask = np.zeros((576, 1024), np.uint8)
    cv2.ellipse(mask, (650, 355), (125, 150), 0, 0, 360, 255, -1)
    return cv2.imencode(".png", mask)[1].tobytes()


def _subject() -> bytes:
    """A red mug before a plain wall, to be cut out and to be made round."""
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


_DRAWN = {"mask": _mask, "subject": _subject}


def _spin() -> bytes:
    """A small film with a subject before a plain wall."""
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


async def specimen(studio: Studio, name: str) -> dict[str, Any]:
    """Run a model, write what its card shows, and tell of it."""
    result = await studio.run(name)
    assert result.output is not None  # noqa: S101 - `run` saw to it
    files = sorted(result.output.files, key=lambda file: not file.content_type.startswith(_KINDS))
    response: dict[str, Any] = {"engine": result.engine, "version": result.engine_version}
    response["inputs"], response["given"] = asked(studio, name), given(studio, name)
    stem = name.replace(":", "-")
    if not files:
        return {**response, **_of_data(stem, result.output.data)}
    return {**response, **_of_file(stem, files[0].content_type, await studio.bytes_of(files[0]))}


def given(studio: Studio, name: str) -> dict[str, Any]:
    """The inputs that stand for themselves, without those that are files of others."""
    inputs: Mapping[str, Any] = studio.wanted[name]["input"]
    return {
        key: value for key, value in inputs.items() if not (isinstance(value, str) and value[:1] in "$@{")
    }


def asked(studio: Studio, name: str) -> str:
    """A short digest of all inputs that a specimen is made from."""
    text = json.dumps(studio.wanted[name], sort_keys=True)
    before = [asked(studio, other) for other in sorted(set(_NAMED.findall(text)) & studio.wanted.keys())]
    return hashlib.sha256("".join((text, *before)).encode()).hexdigest()[:12]


def _of_data(stem: str, data: Mapping[str, Any]) -> dict[str, Any]:
    value = data.get("value")
    if isinstance(value, list) and value and "joints" in value[0]:
        return {"kind": "image", "files": _written(stem, webp=thumbnails.poses(value))}
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


def _of_file(stem: str, content_type: str, data: bytes) -> dict[str, Any]:
    if content_type.startswith("video/"):
        still, clip = thumbnails.film(data)
        return {"kind": "video", "files": _written(stem, webp=still, webm=clip)}
    if content_type.startswith("audio/"):
        clip, peaks = thumbnails.sound(data)
        return {"kind": "audio", "files": _written(stem, mp3=clip), "peaks": peaks}
    if not content_type.startswith(_KINDS):
        return {
            "kind": "text",
            "files": [],
            "text": thumbnails.words({"text": data.decode("utf-8", "replace")}),
        }
    makers = {"image/svg+xml": thumbnails.drawing, "model/gltf-binary": thumbnails.thing}
    return {
        "kind": "image",
        "files": _written(stem, webp=makers.get(content_type, thumbnails.picture)(data)),
    }


def _written(stem: str, **made: bytes) -> list[str]:
    names: list[str] = []
    for ending, data in made.items():
        path = specimens.FOLDER / f"{stem}.{ending}"
        path.write_bytes(data)
        names.append(path.name)
    return names


async def main() -> None:
    """Make what is stale, and write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="make every one anew")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    specimens.FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), probe=False, tables={"engines": {"order": _ORDER}})
        async with bootstrap.running(bootstrap.build(settings)) as product:
            owner = await product.database.write(accounts.create("gallery@localhost", operator=True))
            studio = Studio(product, owner.owner, Path(folder))
            engines = product.catalog.engines()
            known = specimens.read()
            known = {
                name: {**row, "given": given(studio, name)}
                for name, row in known.items()
                if name in studio.wanted
            }
            _write_list(known)
            for name in arguments.models or studio.wanted:
                if not (arguments.all or arguments.models or _stale(studio, engines, known, name)):
                    continue
                began = time.monotonic()
                known[name] = await specimen(studio, name)
                _write_list({each: known[each] for each in studio.wanted if each in known})
                sizes = sum((specimens.FOLDER / file).stat().st_size for file in known[name]["files"])
                seconds = time.monotonic() - began
                print(f"{name:32}{known[name]['kind']:9}{sizes:7,} bytes {seconds:6.1f} s", flush=True)


def _stale(studio: Studio, engines: Mapping[str, Any], known: Mapping[str, Any], name: str) -> bool:
    result = known.get(name)
    if result is None or result["inputs"] != asked(studio, name) or result["engine"] not in engines:
        return True
    present = all((specimens.FOLDER / file).is_file() for file in result["files"])
    return not present or engines[result["engine"]].version != result["version"]


def _write_list(known: Mapping[str, Any]) -> None:
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in known.items())
    (specimens.FOLDER / specimens.LIST).write_text(f"{{\n{rows}\n}}\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
