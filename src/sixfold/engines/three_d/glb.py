"""Meshes as a GLB file (glTF 2.0): one node, one mesh, a primitive for each part, buffers without gaps.

Metres, y up, the front towards +z. Faces are wound counter-clockwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.provenance.formats import glb as container
from sixfold.core.provenance.formats import png

Array = NDArray[Any]

_GENERATOR = "Sixfold"
_FLOAT, _BYTE, _SHORT, _INT = 5126, 5121, 5123, 5125
_VERTICES, _INDICES = 34962, 34963
_LINEAR, _MIPMAPPED, _CLAMP = 9729, 9987, 33071


@dataclass(frozen=True, slots=True)
class Material:
    """How a part's surface looks. `colour` is sRGB 0 to 1 with alpha; textures are encoded pictures."""

    colour: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    metallic: float = 0.0
    roughness: float = 0.8
    glow: float = 0.0
    texture: bytes = b""
    bumps: bytes = b""  # a map of normals in tangent space
    gloss: bytes = b""  # roughness in green, metal in blue

    @property
    def clear(self) -> bool:
        """Whether something can be seen through it."""
        return self.colour[3] < 1


@dataclass(frozen=True, slots=True)
class MeshPart:
    """A mesh: positions and normals Nx3 float32, faces Mx3; colours Nx3 (linear), or coordinates Nx2.

    `tangents` (Nx4) say where the texture's right lies, for a map of normals.
    """

    positions: Array
    normals: Array
    faces: Array
    material: Material = field(default_factory=Material)
    colours: Array | None = None
    coordinates: Array | None = None
    tangents: Array | None = None


@dataclass(slots=True)
class _Buffer:
    data: bytearray = field(default_factory=bytearray)
    views: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    accessors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def view(self, raw: bytes, target: int = 0) -> int:
        self.data += b"\0" * (-len(self.data) % 4)
        row = {"buffer": 0, "byteOffset": len(self.data), "byteLength": len(raw)}
        self.views.append({**row, "target": target} if target else row)
        self.data += raw
        return len(self.views) - 1

    def vertices(self, values: Array, *, bounds: bool = False) -> int:
        """An accessor of float vectors."""
        floats = np.ascontiguousarray(values, "<f4")
        row: dict[str, Any] = {
            "bufferView": self.view(floats.tobytes(), _VERTICES),
            "componentType": _FLOAT,
            "count": len(floats),
            "type": f"VEC{floats.shape[1]}",
        }
        if bounds:
            row |= {"min": floats.min(0).tolist(), "max": floats.max(0).tolist()}
        return self._add(row)

    def colours(self, values: Array) -> int:
        """An accessor of RGBA bytes, four so that each begins at a whole word."""
        eight = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
        four = np.concatenate([eight, np.full((len(eight), 1), 255, np.uint8)], axis=1)
        view = self.view(four.tobytes(), _VERTICES)
        row = {"bufferView": view, "componentType": _BYTE, "normalized": True, "count": len(four)}
        return self._add({**row, "type": "VEC4"})

    def indices(self, faces: Array) -> int:
        """An accessor of triangles, in as few bytes as do."""
        short = int(faces.max(initial=0)) < 0xFFFF
        raw = np.ascontiguousarray(faces, "<u2" if short else "<u4").tobytes()
        kind = _SHORT if short else _INT
        row = {"bufferView": self.view(raw, _INDICES), "componentType": kind, "count": int(faces.size)}
        return self._add({**row, "type": "SCALAR"})

    def _add(self, row: dict[str, Any]) -> int:
        self.accessors.append(row)
        return len(self.accessors) - 1


def encode(parts: Sequence[MeshPart], name: str) -> bytes:
    """The file's bytes; the same parts always give the same ones."""
    buffer = _Buffer()
    images: list[dict[str, Any]] = []
    scene: dict[str, Any] = {
        "asset": {"version": "2.0", "generator": _GENERATOR},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "name": name}],
        "meshes": [
            {"name": name, "primitives": [_primitive(buffer, n, part) for n, part in enumerate(parts)]}
        ],
        "materials": [_material(part.material, buffer, images) for part in parts],
    }
    if images:
        scene["images"] = images
        scene["samplers"] = [
            {"magFilter": _LINEAR, "minFilter": _MIPMAPPED, "wrapS": _CLAMP, "wrapT": _CLAMP}
        ]
        scene["textures"] = [{"source": index, "sampler": 0} for index in range(len(images))]
    buffer.data += b"\0" * (-len(buffer.data) % 4)
    scene |= {
        "buffers": [{"byteLength": len(buffer.data)}],
        "bufferViews": buffer.views,
        "accessors": buffer.accessors,
    }
    return container.assemble(json.dumps(scene, separators=(",", ":")).encode(), bytes(buffer.data))


def _primitive(buffer: _Buffer, number: int, part: MeshPart) -> dict[str, Any]:
    attributes = {
        "POSITION": buffer.vertices(part.positions, bounds=True),
        "NORMAL": buffer.vertices(part.normals),
    }
    if part.coordinates is not None:
        attributes["TEXCOORD_0"] = buffer.vertices(part.coordinates)
    if part.tangents is not None:
        attributes["TANGENT"] = buffer.vertices(part.tangents)
    if part.colours is not None:
        attributes["COLOR_0"] = buffer.colours(part.colours)
    return {"attributes": attributes, "indices": buffer.indices(part.faces), "material": number}


def _material(material: Material, buffer: _Buffer, images: list[dict[str, Any]]) -> dict[str, Any]:
    red, green, blue, alpha = material.colour
    linear = [round(_linear(part), 6) for part in (red, green, blue)]
    surface: dict[str, Any] = {
        "baseColorFactor": [*linear, alpha],
        "metallicFactor": material.metallic,
        "roughnessFactor": material.roughness,
    }
    row: dict[str, Any] = {"pbrMetallicRoughness": surface}
    if material.texture:
        surface["baseColorTexture"] = {"index": _image(material.texture, buffer, images)}
    if material.gloss:
        surface["metallicRoughnessTexture"] = {"index": _image(material.gloss, buffer, images)}
    if material.bumps:
        row["normalTexture"] = {"index": _image(material.bumps, buffer, images)}
    if material.glow:
        row["emissiveFactor"] = [round(part * material.glow, 6) for part in linear]
    if material.clear:
        row["alphaMode"] = "BLEND"
    return row


def _image(data: bytes, buffer: _Buffer, images: list[dict[str, Any]]) -> int:
    kind = "image/png" if png.matches(data) else "image/jpeg"
    images.append({"bufferView": buffer.view(data), "mimeType": kind})
    return len(images) - 1


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def linear(colours: Array) -> Array:
    """sRGB 0 to 1 in linear light, as a vertex's colour is."""
    return np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
