"""Pictures of 3D models in GLB files: shape, colors and size, and refusal of files that cannot be read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.media.thumbnails import WIDTHS
from sixfold.core.provenance.formats import glb as container
from sixfold.engines.three_d import glb
from sixfold.engines.three_d.glb import Material, MeshPart
from sixfold.engines.thumbnails import mesh

MAX_BYTES = 40_000


def square(color: tuple[float, float, float, float], z: float, texture: bytes = b"") -> MeshPart:
    """Return a square of two triangles that faces the viewer."""
    positions = np.array([[-1, -1, z], [1, -1, z], [1, 1, z], [-1, 1, z]], np.float32)
    normals = np.tile(np.array([0, 0, 1], np.float32), (4, 1))
    coordinates = np.array([[0, 1], [1, 1], [1, 0], [0, 0]], np.float32) if texture else None
    material = Material(color=color, texture=texture)
    return MeshPart(positions, normals, np.array([[0, 1, 2], [0, 2, 3]]), material, coordinates=coordinates)


def pixels(path: Path, width: int = 160) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(mesh.render(str(path), width))).convert("RGBA")).astype(int)


def test_the_nearest_face_is_seen_in_its_color(tmp_path: Path) -> None:
    parts = [square((1, 0, 0, 1), 0.4), square((0, 0, 1, 1), -0.4)]
    path = tmp_path / "two.glb"
    path.write_bytes(glb.encode(parts, "two"))
    image = pixels(path)
    assert image.shape == (160, 160, 4)
    red, _, blue, alpha = image[80, 80]
    assert (red > 150, blue < 60, alpha) == (True, True, 255)
    assert image[2, 2, 3] == 0


def test_a_texture_colors_the_faces(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), (0, 200, 0)).save(content, "PNG")
    path = tmp_path / "textured.glb"
    path.write_bytes(glb.encode([square((1, 1, 1, 1), 0.0, content.getvalue())], "textured"))
    red, green, blue, _ = pixels(path)[80, 80]
    assert green > 120 > 60 > max(red, blue)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_of_a_model_is_small(tmp_path: Path, width: int) -> None:
    generator = np.random.default_rng(7)
    positions = generator.uniform(-1, 1, (6000, 3)).astype(np.float32)
    colors = generator.uniform(0, 1, (6000, 3))
    faces = np.arange(6000).reshape(-1, 3)
    path = tmp_path / "noise.glb"
    path.write_bytes(glb.encode([MeshPart(positions, positions, faces, colors=colors)], "noise"))
    data = mesh.render(str(path), width)
    assert data[8:12] == b"WEBP"
    assert len(data) <= MAX_BYTES * max(1, (width / 480) ** 2)


def test_a_fine_mesh_is_drawn_without_gaps(tmp_path: Path) -> None:
    side = 700
    rows, columns = np.mgrid[0:side, 0:side]
    positions = np.stack([columns, rows, np.zeros_like(rows)], -1).reshape(-1, 3).astype(np.float32) / side
    first = (rows[:-1, :-1] * side + columns[:-1, :-1]).ravel()
    corners = [(first, first + 1, first + side + 1), (first, first + side + 1, first + side)]
    faces = np.concatenate([np.stack(each, -1) for each in corners])
    path = tmp_path / "fine.glb"
    normals = np.tile(np.array([0, 0, 1], np.float32), (len(positions), 1))
    path.write_bytes(glb.encode([MeshPart(positions, normals, faces)], "fine"))
    assert len(faces) > 900_000
    assert (pixels(path)[40:120, 50:110, 3] == 255).all()


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    whole = glb.encode([square((1, 1, 1, 1), 0.0)], "whole")
    outside = json.loads(whole[20 : 20 + int.from_bytes(whole[12:16], "little")])
    outside["accessors"][0]["count"] = 10**9
    cycle = {"asset": {"version": "2.0"}, "scenes": [{"nodes": [0]}], "nodes": [{"children": [0]}]}
    contents = [
        b"no model",
        whole[:60],
        container.assemble(json.dumps(outside).encode(), b"\0" * 400),
        container.assemble(json.dumps(cycle).encode(), b""),
        container.assemble(b'{"asset": {"version": "2.0"}}', b""),
    ]
    for number, content in enumerate(contents):
        path = tmp_path / f"{number}.glb"
        path.write_bytes(content)
        with pytest.raises(UnusableInput):
            mesh.render(str(path), 160)


def test_nodes_that_repeat_each_other_are_limited(tmp_path: Path) -> None:
    # Without a limit, these 31 nodes are visited a billion times.
    nodes = [*({"children": [number + 1] * 2} for number in range(30)), {}]
    document = {"asset": {"version": "2.0"}, "scenes": [{"nodes": [0]}], "nodes": nodes}
    path = tmp_path / "nodes.glb"
    path.write_bytes(container.assemble(json.dumps(document).encode(), b""))
    with pytest.raises(UnusableInput, match="more than 20,000 nodes"):
        mesh.render(str(path), 160)


@pytest.mark.parametrize(
    ("stride", "primitives", "reason"),
    [(1, 1, "cannot be read"), (12, 40_000, "more than 30,000,000 rows"), (12, 80_000, "more than")],
    ids=["overlapping rows", "repeated rows", "many primitives"],
)
def test_rows_that_are_read_many_times_are_limited(
    tmp_path: Path, stride: int, primitives: int, reason: str
) -> None:
    # Without limits, 10 MB with rows that overlap take 1 GB, and 1 MB with many primitives minutes.
    count = 30_000 if primitives < 80_000 else 3
    accessors = [
        {"componentType": 5126, "count": count, "type": "VEC3", "bufferView": 0},
        {"componentType": 5125, "count": 3, "type": "SCALAR", "bufferView": 1},
    ]
    document = {
        "asset": {"version": "2.0"},
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}] * primitives}],
        "accessors": accessors,
        "bufferViews": [{"byteStride": stride}, {}],
    }
    path = tmp_path / "rows.glb"
    path.write_bytes(container.assemble(json.dumps(document).encode(), b"\0" * (12 * count + 12)))
    with pytest.raises(UnusableInput, match=reason):
        mesh.render(str(path), 160)


def test_a_texture_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), (0, 200, 0)).save(content, "PNG")
    part = square((1, 1, 1, 1), 0.0, content.getvalue())
    whole = glb.encode([part], "textured")
    end = 20 + int.from_bytes(whole[12:16], "little")
    document = json.loads(whole[20:end])
    document["meshes"][0]["primitives"] *= 50
    path = tmp_path / "textured.glb"
    path.write_bytes(container.assemble(json.dumps(document).encode(), whole[end + 8 :]))
    monkeypatch.setattr(mesh, "_MAX_PIXELS", 64)
    monkeypatch.setattr(mesh.process_resources, "limit_data", lambda _bytes: None)
    assert mesh.make(str(path), 160)[8:12] == b"WEBP"
    monkeypatch.setattr(mesh, "_MAX_PIXELS", 63)
    with pytest.raises(UnusableInput, match="more than 63 pixels"):
        mesh.make(str(path), 160)
