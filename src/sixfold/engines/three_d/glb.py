"""Encoding of meshes as a GLB file (glTF 2.0): one node, one mesh, and a primitive for each part.

Coordinates are in meters with y up and the front toward +z. Faces are wound counterclockwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.provenance.formats import glb as container
from sixfold.core.provenance.formats import png

Array = NDArray[Any]

_GENERATOR = "Sixfold"
_FLOAT, _BYTE, _SHORT, _INT = 5126, 5121, 5123, 5125
_VERTICES, _INDICES = 34962, 34963
_LINEAR, _MIPMAPPED, _CLAMP = 9729, 9987, 33071


class Material(msgspec.Struct, frozen=True):
    """The surface of a part. `color` is sRGB 0 to 1 with alpha; textures are encoded images.

    `bumps` is a normal map in tangent space; `gloss` contains roughness in green and metalness in blue.
    """

    color: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    metallic: float = 0.0
    roughness: float = 0.8
    glow: float = 0.0
    texture: bytes = b""
    bumps: bytes = b""
    gloss: bytes = b""

    @property
    def transparent(self) -> bool:
        """Whether the surface is translucent."""
        return self.color[3] < 1


class MeshPart(msgspec.Struct, frozen=True):
    """A mesh: positions and normals Nx3 float32, faces Mx3, and colors Nx3 (linear) or coordinates Nx2.

    `tangents` (Nx4) point to the right of the texture and are needed for normal maps.
    """

    positions: Array
    normals: Array
    faces: Array
    material: Material = msgspec.field(default_factory=Material)
    colors: Array | None = None
    coordinates: Array | None = None
    tangents: Array | None = None


class _Buffer(msgspec.Struct):
    data: bytearray = msgspec.field(default_factory=bytearray)
    views: list[dict[str, Any]] = []
    accessors: list[dict[str, Any]] = []

    def view(self, raw: bytes, target: int = 0) -> int:
        self.data += b"\0" * (-len(self.data) % 4)
        row = {"buffer": 0, "byteOffset": len(self.data), "byteLength": len(raw)}
        self.views.append({**row, "target": target} if target else row)
        self.data += raw
        return len(self.views) - 1

    def vertices(self, values: Array, *, bounds: bool = False) -> int:
        """Add an accessor for float vectors and return its index.

        `bounds` also stores their minimum and maximum.
        """
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

    def colors(self, values: Array) -> int:
        """Add an accessor of RGBA bytes; the alpha keeps the entries aligned."""
        rgb = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
        rgba = np.concatenate([rgb, np.full((len(rgb), 1), 255, np.uint8)], axis=1)
        view = self.view(rgba.tobytes(), _VERTICES)
        row = {"bufferView": view, "componentType": _BYTE, "normalized": True, "count": len(rgba)}
        return self._add({**row, "type": "VEC4"})

    def indices(self, faces: Array) -> int:
        """Add an accessor of triangles with the smallest index type."""
        short = int(faces.max(initial=0)) < 0xFFFF
        raw = np.ascontiguousarray(faces, "<u2" if short else "<u4").tobytes()
        kind = _SHORT if short else _INT
        row = {"bufferView": self.view(raw, _INDICES), "componentType": kind, "count": int(faces.size)}
        return self._add({**row, "type": "SCALAR"})

    def _add(self, row: dict[str, Any]) -> int:
        self.accessors.append(row)
        return len(self.accessors) - 1


def encode(parts: Sequence[MeshPart], name: str) -> bytes:
    """Return the bytes of the file, which are deterministic."""
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
    if part.colors is not None:
        attributes["COLOR_0"] = buffer.colors(part.colors)
    return {"attributes": attributes, "indices": buffer.indices(part.faces), "material": number}


def _material(material: Material, buffer: _Buffer, images: list[dict[str, Any]]) -> dict[str, Any]:
    red, green, blue, alpha = material.color
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
    if material.transparent:
        row["alphaMode"] = "BLEND"
    return row


def _image(data: bytes, buffer: _Buffer, images: list[dict[str, Any]]) -> int:
    kind = "image/png" if png.matches(data) else "image/jpeg"
    images.append({"bufferView": buffer.view(data), "mimeType": kind})
    return len(images) - 1


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4


def linear(colors: Array) -> Array:
    """Convert sRGB 0 to 1 to linear light, as vertex colors need."""
    return np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
