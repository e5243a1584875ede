"""Reading of GLB files: structure, merged surface and silhouette."""

from __future__ import annotations

import json
import struct
from typing import Any

import cv2
import numpy as np
import pytest

trimesh = pytest.importorskip("trimesh", reason="needs the extra `test`")

_SIZES = {5121: ("u1", 1), 5123: ("<u2", 2), 5125: ("<u4", 4), 5126: ("<f4", 4)}
_PARTS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4}


def read_glb(data: bytes) -> dict[str, Any]:
    """Return the JSON of a GLB after checking the structure."""
    magic, version, total = struct.unpack("<4sII", data[:12])
    assert (magic, version, total) == (b"glTF", 2, len(data))
    length, kind = struct.unpack("<I4s", data[12:20])
    scene = json.loads(data[20 : 20 + length])
    rest, binary = struct.unpack("<I4s", data[20 + length : 28 + length])
    assert (kind, binary, length % 4, rest % 4) == (b"JSON", b"BIN\0", 0, 0)
    assert scene["buffers"] == [{"byteLength": rest}]
    for view in scene["bufferViews"]:
        assert view["byteOffset"] % 4 == 0
        assert view["byteOffset"] + view["byteLength"] <= rest
    for primitive in scene["meshes"][0]["primitives"]:
        shapes = [_values(scene, data, at) for at in primitive["attributes"].values()]
        assert len({len(values) for values in shapes}) == 1
        indices = _values(scene, data, primitive["indices"])
        assert len(indices) % 3 == 0
        assert indices.max() < len(shapes[0])
        positions = _values(scene, data, primitive["attributes"]["POSITION"])
        bounds = scene["accessors"][primitive["attributes"]["POSITION"]]
        assert np.allclose(positions.min(0), bounds["min"])
        assert np.allclose(positions.max(0), bounds["max"])
        lengths = np.linalg.norm(_values(scene, data, primitive["attributes"]["NORMAL"]), axis=1)
        assert np.allclose(lengths, 1, atol=1e-3)
    return scene


def values(data: bytes, name: str) -> Any:
    """Return an attribute of all primitives, concatenated."""
    scene = read_glb(data)
    results = [primitive["attributes"][name] for primitive in scene["meshes"][0]["primitives"]]
    return np.concatenate([_values(scene, data, at) for at in results])


def picture(data: bytes, number: int) -> Any:
    scene = read_glb(data)
    view = scene["bufferViews"][scene["images"][number]["bufferView"]]
    start = 28 + struct.unpack("<I", data[12:16])[0] + view["byteOffset"]
    result = cv2.imdecode(np.frombuffer(data, np.uint8, view["byteLength"], start), cv2.IMREAD_COLOR)
    assert result is not None
    return result[..., ::-1]


def surface(data: bytes) -> Any:
    mesh = trimesh.load(trimesh.util.wrap_as_stream(data), file_type="glb", force="mesh")
    mesh.merge_vertices(merge_tex=True, merge_norm=True, digits_vertex=7)
    return mesh


def outline(mesh: Any, side: int = 128) -> Any:
    """Return the silhouette of a mesh in a square of one meter, seen from the front (bool)."""
    points = np.stack([mesh.vertices[:, 0] + 0.5, 0.5 - mesh.vertices[:, 1]], 1) * side * 16
    drawn = np.zeros((side, side), np.uint8)
    for face in points[mesh.faces].astype(np.int32):
        cv2.fillConvexPoly(drawn, face, 1, shift=4)
    return drawn > 0


def _values(scene: dict[str, Any], data: bytes, at: int) -> Any:
    row = scene["accessors"][at]
    view = scene["bufferViews"][row["bufferView"]]
    kind, parts = _SIZES[row["componentType"]], _PARTS[row["type"]]
    start = 28 + struct.unpack("<I", data[12:16])[0] + view["byteOffset"]
    assert row["count"] * parts * kind[1] <= view["byteLength"]
    flat = np.frombuffer(data, kind[0], row["count"] * parts, start)
    return flat.reshape(-1, parts) if parts > 1 else flat
