"""Images to 3D models: matching silhouettes, closed meshes, and effects of every input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.provenance import embed
from sixfold.engines.three_d import mesh as three_d_mesh
from sixfold.engines.three_d import voxels
from sixfold.engines.three_d.engine import ReliefEngine, VoxelEngine
from tests.harness.cases import nightly_after
from tests.unit.engines import engine_runs
from tests.unit.engines.three_d import meshes

SMALL = {"resolution": 256, "texture_size": 256, "decimation_target": 12_000}


def figure(side: int = 200) -> Any:
    """Return a red and blue object with an arm and a hole on a transparent background (RGBA)."""
    rgba = np.zeros((side, side, 4), np.uint8)
    cv2.circle(rgba, (100, 70), 40, (210, 40, 30, 255), -1)
    cv2.rectangle(rgba, (70, 100), (130, 180), (30, 60, 200, 255), -1)
    cv2.rectangle(rgba, (130, 120), (175, 132), (30, 60, 200, 255), -1)
    cv2.circle(rgba, (100, 145), 14, (0, 0, 0, 0), -1)
    return rgba


def build_model(folder: Path, engine: Any, picture: Any = None, **inputs: Any) -> bytes:
    path = engine_runs.saved(folder / "in.png", figure() if picture is None else picture)
    artifact, _, _ = engine_runs.run(engine, folder, inputs, image=path)
    assert artifact.content_type == "model/gltf-binary"
    meshes.read_glb(artifact.data)
    return artifact.data


def overlap(first: Any, second: Any) -> float:
    """Return the IoU of two silhouettes."""
    return float((first & second).sum() / (first | second).sum())


def expected(ratio: float, side: int = 128) -> Any:
    """Return the figure's silhouette, centered in the square with its longer side at `ratio`."""
    alpha = figure()[..., 3] > 0
    left, top, width, height = cv2.boundingRect(alpha.astype(np.uint8))
    scale = ratio * side / max(width, height)
    offset = (side / 2 - scale * (left + width / 2), side / 2 - scale * (top + height / 2))
    matrix = np.array([[scale, 0, offset[0]], [0, scale, offset[1]]], np.float32)
    return cv2.warpAffine(alpha.astype(np.float32), matrix, (side, side), flags=cv2.INTER_AREA) > 0.5


@pytest.mark.parametrize(
    ("style", "least"), nightly_after(2, [("voxel32", 0.8), ("voxel64", 0.88), ("mesh", 0.93)])
)
def test_front_view_has_the_outline_of_the_image(tmp_path: Path, style: str, least: float) -> None:
    for ratio in (0.6, 0.85):
        glb = build_model(tmp_path, VoxelEngine(), style=style, foreground_ratio=ratio, mc_resolution=128)
        assert overlap(meshes.outline(meshes.surface(glb)), expected(ratio)) > least
    box = np.ptp(meshes.values(glb, "POSITION"), axis=0)
    assert max(box) == pytest.approx(0.85, abs=0.06)


def test_voxel_count_follows_the_style_in_image_colors(tmp_path: Path) -> None:
    for count in (32, 48, 64):
        glb = build_model(tmp_path, VoxelEngine(), style=f"voxel{count}")
        positions = (meshes.values(glb, "POSITION") + 0.5) * count
        assert np.abs(positions - np.rint(positions)).max() < 1e-3
        colors = meshes.values(glb, "COLOR_0")[:, :3].astype(int)
        top = meshes.values(glb, "POSITION")[:, 1] > 0.2
        assert (colors[top, 0] > 3 * colors[top, 2]).all()
        assert (colors[meshes.values(glb, "POSITION")[:, 1] < -0.35][:, 2] > 60).all()
        assert meshes.surface(glb).volume > 0


def test_coplanar_faces_of_one_color_are_merged_outwards() -> None:
    solid = np.zeros((8, 8, 8), bool)
    solid[2:6, 1:7, 3:5] = True
    part = voxels.mesh(solid, np.full((8, 8, 3), 90, np.uint8))
    assert len(part.faces) == 12
    corners = part.positions[part.faces].astype(float)
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert (np.einsum("ij,ij->i", across, part.normals[part.faces[:, 0]]) > 0).all()
    volume = np.einsum("ij,ij->i", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])).sum() / 6
    assert volume == pytest.approx(4 * 6 * 2 / 8**3)


def test_a_smooth_body_is_closed_and_finer_by_mc_resolution(tmp_path: Path) -> None:
    counts = []
    for cells in (128, 256):
        mesh = meshes.surface(build_model(tmp_path, VoxelEngine(), style="mesh", mc_resolution=cells))
        assert mesh.is_watertight
        assert mesh.volume > 0
        # The mesh has one hole.
        assert mesh.euler_number == 0
        counts.append(len(mesh.faces))
    assert counts[1] > 3 * counts[0]
    first, second = (
        build_model(tmp_path, VoxelEngine(), style="voxel48", mc_resolution=cells) for cells in (128, 256)
    )
    assert first != second


@pytest.mark.parametrize("remesh", [True, False])
def test_relief_is_closed_within_its_triangle_limit(tmp_path: Path, remesh: bool) -> None:
    for most in (10_000, 30_000):
        wish = {**SMALL, "decimation_target": most, "remesh": remesh, "seed": 1}
        mesh = meshes.surface(build_model(tmp_path, ReliefEngine(), **wish))
        assert mesh.is_watertight
        assert mesh.volume > 0
        assert 0.8 * most < len(mesh.faces) <= most
    assert overlap(meshes.outline(mesh), expected(0.92)) > (0.93 if remesh else 0.9)


def test_remesh_moves_vertices_to_the_outline() -> None:
    ball = cv2.circle(np.zeros((400, 400), np.float32), (200, 200), 150, 1.0, -1, cv2.LINE_AA)
    off = []
    for smooth in (True, False):
        laid = three_d_mesh.build(ball, 40, smooth=smooth)
        away = np.linalg.norm(laid.nodes[laid.outline] * 400 - 200.5, axis=1) - 150
        off.append(float(np.abs(away).mean()))
    assert off[0] < 0.25 * off[1]


def test_textures_have_the_requested_size(tmp_path: Path) -> None:
    for size in (256, 512):
        glb = build_model(tmp_path, ReliefEngine(), **{**SMALL, "texture_size": size}, seed=3)
        scene = meshes.read_glb(glb)
        surface = scene["materials"][0]["pbrMetallicRoughness"]
        assert {"baseColorTexture", "metallicRoughnessTexture"} <= set(surface)
        assert "normalTexture" in scene["materials"][0]
        colors = meshes.picture(glb, 0)
        assert colors.shape == (size, size, 3)
        # The head is in the front half of the texture.
        assert colors[size // 5, size // 4, 0] > 150
        assert colors[int(size * 0.9), size // 5, 2] > 120
    tangents, normals = meshes.values(glb, "TANGENT"), meshes.values(glb, "NORMAL")
    assert np.allclose(np.linalg.norm(tangents[:, :3], axis=1), 1, atol=1e-3)
    assert np.abs((tangents[:, :3] * normals).sum(1)).max() < 1e-3
    coordinates = meshes.values(glb, "TEXCOORD_0")
    assert coordinates.min() >= 0
    assert coordinates.max() <= 1


def test_seed_changes_only_the_back_and_angle_the_taper(tmp_path: Path) -> None:
    def places(**more: Any) -> Any:
        return meshes.values(
            build_model(tmp_path, ReliefEngine(), **{**SMALL, "seed": 1, **more}), "POSITION"
        )

    first, second = places(), places(seed=2)
    front = first[:, 2] > 0.005
    assert np.array_equal(first[front], second[front])
    assert np.abs(first[~front] - second[~front]).max() > 0.01
    wide, narrow = places(fov=1.4), places(fov=0.1)
    assert np.abs(narrow[:, 0]).max() < np.abs(wide[:, 0]).max()
    deep = np.argmax(wide[:, 2])
    assert np.abs(wide[deep, :2]).sum() < np.abs(narrow[deep, :2]).sum()
    assert np.array_equal(first, places())


@pytest.mark.nightly
def test_resolution_sets_the_detail_of_the_texture(tmp_path: Path) -> None:
    fine = np.dstack([engine_runs.scenery((900, 900)), np.full((900, 900), 255, np.uint8)])
    fine[:40, :, 3] = 0
    sharp = [
        cv2.Laplacian(
            meshes.picture(build_model(tmp_path, ReliefEngine(), fine, **wish), 0), cv2.CV_32F
        ).std()
        for wish in ({**SMALL, "texture_size": 1024, "resolution": side} for side in (128, 1024))
    ]
    assert sharp[1] > 1.3 * sharp[0]


def test_subject_is_found_without_alpha_or_whole_image_is_used(tmp_path: Path) -> None:
    rgba = figure()
    ground = np.full((200, 200, 3), 235, np.uint8)
    rgb = np.where(rgba[..., 3:] > 0, rgba[..., :3], ground)
    result = meshes.outline(
        meshes.surface(build_model(tmp_path, VoxelEngine(), rgb, style="mesh", mc_resolution=128))
    )
    assert overlap(result, expected(0.85)) > 0.85
    plain = build_model(tmp_path, VoxelEngine(), np.full((60, 90, 3), 120, np.uint8), style="voxel32")
    assert np.ptp(meshes.values(plain, "POSITION")[:, 0]) > 0.7
    with pytest.raises(UnusableInput, match="transparent"):
        build_model(tmp_path, VoxelEngine(), np.zeros((20, 20, 4), np.uint8))


@pytest.mark.parametrize("engine", [VoxelEngine(), ReliefEngine()], ids=["voxels", "relief"])
@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 1, 4), (2, 2, 3), (1, 40, 3)])
def test_tiny_and_translucent_images_become_bodies(
    tmp_path: Path, engine: Any, shape: tuple[int, ...]
) -> None:
    options = SMALL if isinstance(engine, ReliefEngine) else {"style": "voxel32"}
    data = build_model(tmp_path, engine, np.full(shape, 100, np.uint8), **options)
    assert np.ptp(meshes.values(data, "POSITION")[:, 0]) > 0.2


def test_glb_with_a_manifest_remains_valid(tmp_path: Path) -> None:
    glb = build_model(tmp_path, VoxelEngine(), style="voxel32")
    marked = embed.embed(glb, "model/gltf-binary", '{"model":"x"}')
    assert embed.extract(marked) == '{"model":"x"}'
    assert np.array_equal(meshes.values(marked, "POSITION"), meshes.values(glb, "POSITION"))
