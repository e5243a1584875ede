"""Engines that generate GLB files from an image or a prompt, without weights."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, Quality, Result, Task
from sixfold.engines.image.matting.engine import FULL_FROM
from sixfold.engines.three_d import glb, mesh, prompt_parser, subject, texture_bake, voxels
from sixfold.engines.three_d.glb import MeshPart
from sixfold.engines.three_d.subject import MeshSubject

Array = NDArray[Any]

GLB = "model/gltf-binary"
_STYLE, _RATIO, _CELLS = "voxel48", 0.85, 256
_RESOLUTION, _TEXTURE, _FACES = 1536, 2048, 500_000
# The field of view of a normal lens.
_FOV = math.radians(35)
# The default fraction of the square that the subject fills.
_FULL_RATIO = 0.92
# The depth of front and back, as fractions of the subject's shorter side.
_FRONT, _BACK = 0.24, 0.17
# The relative variation of the back by the seed.
_BACK_SPREAD = 0.35


class VoxelEngine:
    """Converts the subject of `image` to voxels or to a smooth mesh with vertex colors."""

    name = "voxels"
    version = "4"

    def run(self, task: Task, context: Context) -> Result:
        """Return a GLB that fits into a cube of one meter."""
        style = str(task.inputs.get("style") or _STYLE)
        ratio = float(task.inputs.get("foreground_ratio") or _RATIO)
        cells = int(task.inputs.get("mc_resolution") or _CELLS)
        mesh_subject = subject.read(task, max(512, 2 * cells), ratio)
        context.progress(0.4)
        if style == "mesh":
            part = _smooth_mesh(mesh_subject, cells)
        else:
            part = voxels.mesh(*voxels.grid(_resize(mesh_subject, cells), int(style.removeprefix("voxel"))))
        context.progress(0.9)
        _warn(mesh_subject, context)
        quality: Quality = "full" if mesh_subject.confidence >= FULL_FROM else "preview"
        return _result((part,), task.model, quality, mesh_subject)


class ReliefEngine:
    """Converts the subject of `image` to a closed mesh with a plausible back and baked textures."""

    name = "relief"
    version = "3"

    def run(self, task: Task, context: Context) -> Result:
        inputs = task.inputs
        resolution = int(inputs.get("resolution") or _RESOLUTION)
        max_faces = int(inputs.get("decimation_target") or _FACES)
        mesh_subject = subject.read(task, resolution, _FULL_RATIO)
        context.progress(0.35)
        sheets = mesh.fit(
            mesh_subject.inside, max_faces, resolution // 2, smooth=bool(inputs.get("remesh", True))
        )
        width = _shorter_side(mesh_subject)
        back = _back_depth(mesh_subject, int(inputs.get("seed") or 0)) * (_BACK * width)
        closed = mesh.close(sheets, mesh_subject.near * (_FRONT * width), back, _distance(inputs.get("fov")))
        context.progress(0.6)
        atlas = texture_bake.Atlas.of(mesh_subject.inside)
        material = texture_bake.bake(mesh_subject, atlas, int(inputs.get("texture_size") or _TEXTURE))
        context.progress(0.9)
        part = MeshPart(
            closed.positions,
            closed.normals,
            closed.faces,
            material,
            coordinates=atlas.coordinates(sheets.nodes[closed.node], closed.back),
            tangents=closed.tangents,
        )
        _warn(mesh_subject, context)
        return _result((part,), task.model, "preview", mesh_subject)


class TextTo3DEngine:
    """Builds the objects that `prompt` names, or an abstract object in the colors of an unknown prompt."""

    name = "bodies"
    version = "3"

    def run(self, task: Task, context: Context) -> Result:
        """Return a GLB that stands on the ground."""
        parsed = prompt_parser.parse(str(task.inputs.get("prompt") or ""))
        objects = parsed.objects
        parts = prompt_parser.build(objects, int(task.inputs.get("seed") or 0))
        context.progress(0.8)
        names = [object_.name or "study" for object_ in objects]
        info = {
            "vertices": sum(len(part.positions) for part in parts),
            "faces": sum(len(part.faces) for part in parts),
        }
        data = glb.encode(parts, " and ".join(names))
        return Result((Artifact(GLB, data, info),), {"things": names}, "preview", words=parsed.words)


def _smooth_mesh(mesh_subject: MeshSubject, cells: int) -> MeshPart:
    """Return a smooth mesh, symmetrical from front to back, with vertex colors."""
    sheets = mesh.build(mesh_subject.inside, cells, smooth=True)
    depth = mesh_subject.near * (_FRONT * _shorter_side(mesh_subject))
    closed = mesh.close(sheets, depth, depth, 1e6)
    pixels = np.clip((sheets.nodes[closed.node] * mesh_subject.side).astype(int), 0, mesh_subject.side - 1)
    colors = mesh_subject.rgb[pixels[:, 1], pixels[:, 0]] / 255
    return MeshPart(closed.positions, closed.normals, closed.faces, glb.Material(), colors=glb.linear(colors))


def _resize(mesh_subject: MeshSubject, cells: int) -> MeshSubject:
    size = (cells, cells)
    small, rgb, near = (
        cv2.resize(values, size, interpolation=cv2.INTER_AREA)
        for values in (mesh_subject.inside, mesh_subject.rgb, mesh_subject.near)
    )
    return MeshSubject(rgb, small, near, mesh_subject.confidence)


def _shorter_side(mesh_subject: MeshSubject) -> float:
    """Return the shorter side of the subject in meters, at least 0.3 of the longer side."""
    rows, columns = (np.flatnonzero((mesh_subject.inside > 0.5).any(axis)) for axis in (1, 0))
    sides = sorted((np.ptp(span) + 1) / mesh_subject.side if span.size else 0.1 for span in (rows, columns))
    return max(sides[0], 0.3 * sides[1])


def _back_depth(mesh_subject: MeshSubject, seed: int) -> Array:
    """Return the depth of the back: round like the front, with random variation."""
    body = subject.body(mesh_subject.inside, np.zeros_like(mesh_subject.near))
    coarse = np.random.default_rng(seed).uniform(-1, 1, (5, 5)).astype(np.float32)
    wide = cv2.resize(coarse, (mesh_subject.side,) * 2, interpolation=cv2.INTER_CUBIC)
    return body * np.clip(1 + _BACK_SPREAD * wide, 0.4, 1.6)


def _distance(fov: Any) -> float:
    """Return the distance in meters at which a camera's field of view, `fov` radians, is one meter wide."""
    angle = float(fov) if isinstance(fov, int | float) else _FOV
    return 0.5 / math.tan(min(2.0, max(0.05, angle)) / 2)


def _warn(mesh_subject: MeshSubject, context: Context) -> None:
    if mesh_subject.confidence < 0.5:
        context.log("subject and background are hard to separate; an image with alpha is cut exactly")


def _result(parts: tuple[MeshPart, ...], name: str, quality: Quality, mesh_subject: MeshSubject) -> Result:
    data = glb.encode(parts, name)
    info = {
        "vertices": sum(len(part.positions) for part in parts),
        "faces": sum(len(part.faces) for part in parts),
    }
    return Result((Artifact(GLB, data, info),), {"confidence": round(mesh_subject.confidence, 3)}, quality)
