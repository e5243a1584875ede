"""Pictures of 3D models in GLB files, as square WebP images with a transparent background.

They are created in a separate process with limits on memory and time, because a provider may have returned
the file.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sixfold import process_resources
from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image import decoder_process
from sixfold.engines.thumbnails import image as thumbnails

Array = NDArray[Any]

_MEMORY_BYTES = 2**30
_MAX_BYTES, _MAX_TRIANGLES, _MAX_DEPTH = 256 * 2**20, 600_000, 32
# A primitive with more triangles is drawn by every second or third of them.
_DRAWN_TRIANGLES, _COVER = 250_000, 1.5
# Rows of all accessors that are read, and the rows whose time a primitive takes. A few bytes can be the rows
# of thousands of primitives.
_MAX_ROWS, _ROWS_OF_PRIMITIVE = 30_000_000, 500
_MAX_PIXELS = 200_000_000
# Visits of nodes: a few nodes that repeat each other could be visited for minutes.
_MAX_VISITS = 20_000
_UNREADABLE = "The 3D model cannot be read."
_OVERSAMPLING = 2
# The share of the image that the model takes, and the angles from which it is seen, in radians.
_FILL, _YAW, _PITCH = 0.88, math.radians(-30), math.radians(18)
_LIGHT, _AMBIENT = np.array([0.35, 0.75, 0.55]), 0.42
_TYPES = {5120: "i1", 5121: "u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_PARTS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
_TRIANGLES = 4
_JSON, _BINARY = 0x4E4F534A, 0x004E4942
_TEXTURE_SIDE = 512
# Qualities that are tried in this order until the image is small enough.
_QUALITIES, _MAX_IMAGE_BYTES = (80, 60, 40, 20), 40_000


def render(path: str, width: int) -> bytes:
    """Return a picture of a GLB file, `width` pixels wide and high; raises `UnusableInput`."""
    return decoder_process.call(f"{__name__}:make", _MEMORY_BYTES, path, width)


def make(path: str, width: int) -> bytes:
    """Return the result of `render`; limits the memory of this process."""
    process_resources.limit_data(_MEMORY_BYTES)
    try:
        parts = list(_Scene(Path(path)).parts())
    except (ValueError, KeyError, IndexError, TypeError, OSError, RecursionError) as error:
        raise UnusableInput(_UNREADABLE) from error
    if not parts:
        raise UnusableInput("The 3D model has no triangles.")
    triangles = np.concatenate([part[0] for part in parts])
    colors = np.concatenate([part[1] for part in parts])
    return _encoded(_draw(triangles, colors, width), width)


class _Scene:
    """The triangles of a GLB file with their colors."""

    def __init__(self, path: Path) -> None:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("too large")
        data = path.read_bytes()
        if data[:4] != b"glTF":
            raise ValueError("no GLB")
        self._binary = b""
        self._visits = self._triangles = self._rows = self._pixels = 0
        self._textures: dict[int, Array] = {}
        self._document: dict[str, Any] = {}
        at = 12
        while at + 8 <= len(data):
            length, kind = (int.from_bytes(data[at + k : at + k + 4], "little") for k in (0, 4))
            body = data[at + 8 : at + 8 + length]
            if kind == _JSON:
                self._document = json.loads(body)
            elif kind == _BINARY:
                self._binary = body
            at += 8 + length

    def parts(self) -> Iterator[tuple[Array, Array]]:
        """Yield the corners (Nx3x3) and the linear colors (Nx3) of each primitive of the scene."""
        scenes = self._document.get("scenes") or [{"nodes": range(len(self._document.get("nodes", ())))}]
        for node in scenes[self._document.get("scene", 0)].get("nodes", ()):
            yield from self._node(node, np.eye(4), 0)

    def _node(self, index: int, above: Array, depth: int) -> Iterator[tuple[Array, Array]]:
        if depth > _MAX_DEPTH:
            return
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise UnusableInput(f"The 3D model has more than {_MAX_VISITS:,} nodes.")
        node = self._document["nodes"][index]
        matrix = above @ _matrix(node)
        if "mesh" in node:
            for primitive in self._document["meshes"][node["mesh"]]["primitives"]:
                part = self._primitive(primitive)
                if part is not None:
                    corners, colors = part
                    yield corners @ matrix[:3, :3].T + matrix[:3, 3], colors
        for child in node.get("children", ()):
            yield from self._node(child, matrix, depth + 1)

    def _primitive(self, primitive: dict[str, Any]) -> tuple[Array, Array] | None:
        if primitive.get("mode", _TRIANGLES) != _TRIANGLES:
            return None
        self._spend(_ROWS_OF_PRIMITIVE)
        attributes = primitive["attributes"]
        positions = self._accessor(attributes["POSITION"])[:, :3].astype(float)
        count = len(positions)
        indices = self._accessor(primitive["indices"])[:, 0] if "indices" in primitive else np.arange(count)
        faces = indices[: len(indices) // 3 * 3].reshape(-1, 3).astype(np.int64)
        step = max(1, math.ceil(len(faces) / _DRAWN_TRIANGLES))
        faces = faces[::step]
        self._triangles += len(faces)
        if self._triangles > _MAX_TRIANGLES:
            raise UnusableInput(f"The 3D model has more than {_MAX_TRIANGLES:,} triangles.")
        materials = self._document.get("materials", ())
        material = materials[primitive["material"]] if "material" in primitive else {}
        surface = material.get("pbrMetallicRoughness", {})
        colors = np.tile(
            np.asarray(surface.get("baseColorFactor", (1.0, 1.0, 1.0))[:3], float), (len(faces), 1)
        )
        if "COLOR_0" in attributes:
            colors *= self._accessor(attributes["COLOR_0"])[:, :3][faces].mean(1)
        if "baseColorTexture" in surface and "TEXCOORD_0" in attributes:
            texture = self._texture(surface["baseColorTexture"]["index"])
            sampled = _sampled(texture, self._accessor(attributes["TEXCOORD_0"])[:, :2][faces].mean(1))
            colors *= (sampled / 255) ** 2.2
        return _enlarged(positions[faces], step), colors

    def _accessor(self, index: int) -> Array:
        """Return the values of an accessor, one row each; normalized integers are 0 to 1."""
        accessor = self._document["accessors"][index]
        kind = np.dtype(_TYPES[accessor["componentType"]])
        count, parts = int(accessor["count"]), _PARTS[accessor["type"]]
        view = self._document["bufferViews"][accessor["bufferView"]]
        start = view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
        stride = view.get("byteStride") or kind.itemsize * parts
        if stride < kind.itemsize * parts:
            raise ValueError("the rows of the accessor overlap")
        if min(start, count) < 0 or start + (count - 1) * stride + kind.itemsize * parts > len(self._binary):
            raise ValueError("the accessor is outside of the binary data")
        self._spend(count)
        values = np.ndarray((count, parts), kind, self._binary, start, (stride, kind.itemsize))
        return values / np.iinfo(kind).max if accessor.get("normalized") and kind.kind != "f" else values

    def _spend(self, rows: int) -> None:
        self._rows += rows
        if self._rows > _MAX_ROWS:
            raise UnusableInput(f"The 3D model has more than {_MAX_ROWS:,} rows of data.")

    def _texture(self, index: int) -> Array:
        """Return a texture, of at most 512 by 512 pixels, which is decoded once."""
        if index in self._textures:
            return self._textures[index]
        image = self._document["images"][self._document["textures"][index]["source"]]
        view = self._document["bufferViews"][image["bufferView"]]
        start = view.get("byteOffset", 0)
        with Image.open(io.BytesIO(self._binary[start : start + view["byteLength"]])) as opened:
            self._pixels += opened.width * opened.height
            if self._pixels > _MAX_PIXELS:
                raise UnusableInput(f"The textures of the 3D model have more than {_MAX_PIXELS:,} pixels.")
            opened.draft("RGB", (_TEXTURE_SIDE, _TEXTURE_SIDE))
            pixels = opened.convert("RGB")
            pixels.thumbnail((_TEXTURE_SIDE, _TEXTURE_SIDE))
        self._textures[index] = np.asarray(pixels)
        return self._textures[index]


def _enlarged(triangles: Array, step: int) -> Array:
    """Return one of every `step` triangles of a mesh, so large that they cover those left out."""
    if step == 1:
        return triangles
    centers = triangles.mean(1, keepdims=True)
    return centers + (triangles - centers) * (_COVER * math.sqrt(step))


def _matrix(node: dict[str, Any]) -> Array:
    if "matrix" in node:
        return np.array(node["matrix"], float).reshape(4, 4).T
    matrix = np.eye(4)
    x, y, z, w = node.get("rotation", (0.0, 0.0, 0.0, 1.0))
    turn = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    matrix[:3, :3] = turn * np.asarray(node.get("scale", (1.0, 1.0, 1.0)), float)
    matrix[:3, 3] = node.get("translation", (0.0, 0.0, 0.0))
    return matrix


def _sampled(texture: Array, coordinates: Array) -> Array:
    height, width = texture.shape[:2]
    wrapped = np.nan_to_num(coordinates % 1.0)
    columns = np.minimum((wrapped[:, 0] * width).astype(int), width - 1)
    rows = np.minimum((wrapped[:, 1] * height).astype(int), height - 1)
    return texture[rows, columns]


def _draw(triangles: Array, colors: Array, width: int) -> Image.Image:
    """Return the triangles, the farthest first, in flat colors."""
    side = width * _OVERSAMPLING
    normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    lengths = np.linalg.norm(normals, axis=1)
    lit = np.abs(normals @ (_LIGHT / np.linalg.norm(_LIGHT))) / np.maximum(lengths, 1e-12)
    shaded = np.clip(colors * (_AMBIENT + (1 - _AMBIENT) * lit)[:, None], 0, 1) ** (1 / 2.2)
    seen = triangles @ _view().T
    flat = seen[..., :2]
    low, high = flat.min((0, 1)), flat.max((0, 1))
    if not np.isfinite(flat).all():
        raise UnusableInput(_UNREADABLE)
    scale = side * _FILL / max(float((high - low).max()), 1e-9)
    points = (flat - (low + high) / 2) * (scale, -scale) + side / 2
    image = Image.new("RGBA", (side, side), (128, 128, 128, 0))
    canvas = ImageDraw.Draw(image)
    pixels = np.rint(shaded * 255).astype(int)
    for at in np.argsort(seen[..., 2].mean(1)).tolist():
        red, green, blue = pixels[at].tolist()
        # The outline covers the gaps between neighbors.
        canvas.polygon(
            [tuple(point) for point in points[at].tolist()], (red, green, blue), (red, green, blue)
        )
    return image.resize((width, width), Image.Resampling.LANCZOS)


def _view() -> Array:
    yaw = np.array([[math.cos(_YAW), 0, math.sin(_YAW)], [0, 1, 0], [-math.sin(_YAW), 0, math.cos(_YAW)]])
    pitch = np.array(
        [[1, 0, 0], [0, math.cos(_PITCH), -math.sin(_PITCH)], [0, math.sin(_PITCH), math.cos(_PITCH)]]
    )
    return pitch @ yaw


def _encoded(image: Image.Image, width: int) -> bytes:
    limit = _MAX_IMAGE_BYTES * max(1.0, (width / 480) ** 2)
    return thumbnails.encode(image, limit, _QUALITIES)
