"""The engines: a picture in, a GLB out, without weights."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, Quality, Result, Task
from sixfold.engines.three_d import glb, mesh, subject, texture_bake, voxels
from sixfold.engines.three_d.glb import MeshPart
from sixfold.engines.three_d.subject import MeshSubject

Array = NDArray[Any]

GLB = "model/gltf-binary"
_STYLE, _RATIO, _CELLS = "voxel48", 0.85, 256
_RESOLUTION, _TEXTURE, _FACES = 1536, 2048, 500_000
_FOV = math.radians(35)  # an ordinary lens
_FULL_RATIO = 0.92  # of the square, where nothing is said
_FRONT, _BACK = 0.24, 0.17  # of the thing's shorter side: how far front and back stand out
_BACK_SPREAD = 0.35  # how much the seed changes the back


class VoxelEngine:
    """Stands the subject of `image` up as cubes or as a smooth body, in its own colours."""

    name = "voxels"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """A GLB in a cube of one metre."""
        style = str(task.inputs.get("style") or _STYLE)
        ratio = float(task.inputs.get("foreground_ratio") or _RATIO)
        cells = int(task.inputs.get("mc_resolution") or _CELLS)
        seen = subject.read(task, max(512, 2 * cells), ratio)
        context.progress(0.4)
        if style == "mesh":
            part = _body(seen, cells)
        else:
            part = voxels.mesh(*voxels.grid(_at(seen, cells), int(style.removeprefix("voxel"))))
        context.progress(0.9)
        _warn(seen, context)
        return _result((part,), task.model, "full", seen)


class ReliefEngine:
    """Gives the subject of `image` a round front and a back that may be, with baked textures."""

    name = "relief"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """A GLB whose mesh is closed."""
        inputs = task.inputs
        resolution = int(inputs.get("resolution") or _RESOLUTION)
        most = int(inputs.get("decimation_target") or _FACES)
        seen = subject.read(task, resolution, _FULL_RATIO)
        context.progress(0.35)
        laid = mesh.fitting(seen.inside, most, resolution // 2, smooth=bool(inputs.get("remesh", True)))
        across = _shorter(seen)
        back = _unseen(seen, int(inputs.get("seed") or 0)) * (_BACK * across)
        closed = mesh.closed(laid, seen.near * (_FRONT * across), back, _distance(inputs.get("fov")))
        context.progress(0.6)
        atlas = texture_bake.Atlas.of(seen.inside)
        material = texture_bake.baked(seen, atlas, int(inputs.get("texture_size") or _TEXTURE))
        context.progress(0.9)
        part = MeshPart(
            closed.positions,
            closed.normals,
            closed.faces,
            material,
            coordinates=atlas.coordinates(laid.nodes[closed.node], closed.back),
            tangents=closed.tangents,
        )
        _warn(seen, context)
        return _result((part,), task.model, "preview", seen)


def _body(seen: MeshSubject, cells: int) -> MeshPart:
    """A smooth body, alike before and behind, with a colour at every vertex."""
    laid = mesh.laid(seen.inside, cells, smooth=True)
    deep = seen.near * (_FRONT * _shorter(seen))
    closed = mesh.closed(laid, deep, deep, 1e6)
    places = np.clip((laid.nodes[closed.node] * seen.side).astype(int), 0, seen.side - 1)
    colours = seen.rgb[places[:, 1], places[:, 0]] / 255
    return MeshPart(
        closed.positions, closed.normals, closed.faces, glb.Material(), colours=glb.linear(colours)
    )


def _at(seen: MeshSubject, cells: int) -> MeshSubject:
    """The subject as a grid of `cells` shows it."""
    size = (cells, cells)
    small, rgb, near = (
        cv2.resize(values, size, interpolation=cv2.INTER_AREA)
        for values in (seen.inside, seen.rgb, seen.near)
    )
    return MeshSubject(rgb, small, near, seen.confidence)


def _shorter(seen: MeshSubject) -> float:
    """The shorter side of the thing in metres, but never a sliver of the longer one."""
    rows, columns = (np.flatnonzero((seen.inside > 0.5).any(axis)) for axis in (1, 0))
    sides = sorted((np.ptp(found) + 1) / seen.side if found.size else 0.1 for found in (rows, columns))
    return max(sides[0], 0.3 * sides[1])


def _unseen(seen: MeshSubject, seed: int) -> Array:
    """How far the back stands out: round like the front, flatter here and fuller there by the seed."""
    body = subject.body(seen.inside, np.zeros_like(seen.near))
    coarse = np.random.default_rng(seed).uniform(-1, 1, (5, 5)).astype(np.float32)
    wide = cv2.resize(coarse, (seen.side,) * 2, interpolation=cv2.INTER_CUBIC)
    return body * np.clip(1 + _BACK_SPREAD * wide, 0.4, 1.6)


def _distance(fov: Any) -> float:
    """How far before the middle a camera of this angle (radians) stands that sees one metre there."""
    angle = float(fov) if isinstance(fov, int | float) else _FOV
    return 0.5 / math.tan(min(2.0, max(0.05, angle)) / 2)


def _warn(seen: MeshSubject, context: Context) -> None:
    if seen.confidence < 0.5:
        context.log("the subject is hard to tell from its background: a picture with alpha is cut exactly")


def _result(parts: tuple[MeshPart, ...], name: str, quality: Quality, seen: MeshSubject) -> Result:
    data = glb.encode(parts, name)
    info = {
        "vertices": sum(len(part.positions) for part in parts),
        "faces": sum(len(part.faces) for part in parts),
    }
    return Result((Artifact(GLB, data, info),), {"confidence": round(seen.confidence, 3)}, quality)
