"""Movement of a walker on a terrain: start, steps and obstacles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sixfold.engines.image.scene import noise
from sixfold.engines.live.world.renderer import CameraEye
from sixfold.engines.live.world.terrain import SIZE, WorldTerrain

_EYE = 1.72
_SPEED, _TURN = 3.4, 1.15  # m/s, rad/s
_PUSH = 6.0  # acceleration of speed and turn, 1/s
_STEEP = 0.75
_TRUNK = 0.75


def begin(land: WorldTerrain, prompt: str) -> dict[str, Any]:
    """Return the state of a walker at a spot with a good view."""
    x, z, yaw = _spot(land)
    return {"prompt": prompt, "x": x, "z": z, "yaw": yaw, "speed": 0.0, "turn": 0.0, "t": 0.0, "way": 0.0,
            "eye": _ground(land, x, z) + _EYE}  # fmt: skip


def settle(state: dict[str, Any], land: WorldTerrain) -> None:
    """Move the walker to another terrain: to the same position, or to a new spot if it is blocked."""
    if not _free(land, state["x"], state["z"], _ground(land, state["x"], state["z"]), 0.0):
        state["x"], state["z"], state["yaw"] = _spot(land)
    state["eye"] = _ground(land, state["x"], state["z"]) + _EYE


def advance(state: dict[str, Any], land: WorldTerrain, keys: tuple[str, ...], dt: float) -> None:
    """Advance by `dt` seconds in steps short enough to detect every collision."""
    pressed = set(keys)
    pieces = max(1, math.ceil(dt / 0.05))
    for _ in range(pieces):
        _step(state, land, pressed, dt / pieces)


def eye(state: dict[str, Any]) -> CameraEye:
    """Return the walker's camera, which sways slightly at each step."""
    rock = 0.035 * math.sin(state["way"] * 2 * math.pi / 1.5)
    return CameraEye(state["x"], state["eye"] + rock, state["z"], state["yaw"], state["t"])


def _step(state: dict[str, Any], land: WorldTerrain, keys_down: set[str], dt: float) -> None:
    share = 1 - math.exp(-_PUSH * dt)
    fast = 1.8 if "shift" in keys_down else 1.0
    state["speed"] += (
        _SPEED * fast * (("w" in keys_down) - 0.6 * ("s" in keys_down)) - state["speed"]
    ) * share
    state["turn"] += (_TURN * (("a" in keys_down) - ("d" in keys_down)) - state["turn"]) * share
    state["t"] += dt
    state["yaw"] = (state["yaw"] + state["turn"] * dt) % (2 * math.pi)
    dx = math.sin(state["yaw"]) * state["speed"] * dt
    dz = math.cos(state["yaw"]) * state["speed"] * dt
    here = _ground(land, state["x"], state["z"])
    # If the way is blocked, slide along the obstacle.
    for mx, mz in ((dx, dz), (dx, 0.0), (0.0, dz)):
        x, z = state["x"] + mx, state["z"] + mz
        if _free(land, x, z, here, math.hypot(mx, mz)):
            state["x"], state["z"] = x % SIZE, z % SIZE
            state["way"] += math.hypot(mx, mz)
            break
    else:
        state["speed"] *= 0.5
    state["eye"] += (_ground(land, state["x"], state["z"]) + _EYE - state["eye"]) * (1 - math.exp(-9 * dt))


def _ground(land: WorldTerrain, x: float, z: float) -> float:
    column, row = math.floor(x), math.floor(z)
    fx, fz = x - column, z - row
    h = land.height
    c0, c1, r0, r1 = column % SIZE, (column + 1) % SIZE, row % SIZE, (row + 1) % SIZE
    return float(
        (h[r0, c0] * (1 - fx) + h[r0, c1] * fx) * (1 - fz) + (h[r1, c0] * (1 - fx) + h[r1, c1] * fx) * fz
    )


def _free(land: WorldTerrain, x: float, z: float, here: float, distance: float) -> bool:
    """Return whether a point is accessible from the ground height `here`, `distance` meters away."""
    ground = _ground(land, x, z)
    if ground < land.water + 0.12 or ground - here > _STEEP * distance + 0.02:
        return False
    if not len(land.trees):
        return True
    dx = np.abs((land.trees[:, 0] - x + SIZE / 2) % SIZE - SIZE / 2)
    dz = np.abs((land.trees[:, 1] - z + SIZE / 2) % SIZE - SIZE / 2)
    return not bool(((dx < _TRUNK) & (dz < _TRUNK)).any())


def _spot(land: WorldTerrain) -> tuple[float, float, float]:
    """Return x and z of a dry, level spot, and the yaw with the best view."""
    rng = noise.stream("live", land.place.seed, "spot")
    spots = rng.random((260, 2)) * SIZE
    angles = np.arange(16) * (2 * np.pi / 16)
    far = np.array([4, 8, 14, 22, 34, 50, 75, 110, 160, 230, 320, 430], np.float64)
    xs = spots[:, 0, None, None] + np.sin(angles)[None, :, None] * far
    zs = spots[:, 1, None, None] + np.cos(angles)[None, :, None] * far
    heights = land.height[zs.astype(int) % SIZE, xs.astype(int) % SIZE]
    row, column = spots[:, 1].astype(int) % SIZE, spots[:, 0].astype(int) % SIZE
    eye_height = land.height[row, column][:, None, None] + _EYE
    rise = (np.maximum(heights, land.water) - eye_height) / far
    open_near = -np.clip(rise[..., :5].max(-1) + 0.02, 0, 1) * 6
    skyline = rise[..., 5:].max(-1)
    grand = -np.abs(skyline - 0.13) * 3.5
    varied = heights[..., 4:].std(-1) / max(float(land.height.std()), 1e-3) * 0.35
    wet = (heights[..., 3:9] < land.water).mean(-1)
    weights = land.place.land.get("view", {})
    lake = -np.abs(wet - 0.42) * (weights.get("water", 1.6) if land.place.land["water"] > 0 else 0.0)
    facing = np.sin(angles) * land.sun[0] + np.cos(angles) * land.sun[2]
    # Light from the side and slightly from the front looks best.
    sunward = -0.35 * np.abs(facing - 0.45)
    light = land.color.mean(-1)[zs.astype(int) % SIZE, xs.astype(int) % SIZE][..., :8].mean(-1)
    bright = np.minimum(light / max(float(land.color.mean()), 1e-3), 1.15)
    tree_row, tree_column = land.trees[:, 1].astype(int) % SIZE, land.trees[:, 0].astype(int) % SIZE
    crowded = np.zeros((SIZE, SIZE), bool)
    for dz in range(-3, 4):
        for dx in range(-3, 4):
            crowded[(tree_row + dz) % SIZE, (tree_column + dx) % SIZE] = True
    blocked = crowded[zs[..., :3].astype(int) % SIZE, xs[..., :3].astype(int) % SIZE].any(-1)
    wooded = crowded[zs[..., 5:9].astype(int) % SIZE, xs[..., 5:9].astype(int) % SIZE].mean(-1)
    dry = (
        (land.height[row, column] > land.water + 0.5)
        & (land.steep[row, column] < 0.5)
        & ~crowded[row, column]
    )
    score = open_near + grand + varied + lake + wooded * weights.get("trees", 0.0) + sunward + bright
    score -= 2.0 * blocked + 50.0 * ~dry[:, None]
    best = int(score.argmax())
    number, angle = divmod(best, len(angles))
    return float(spots[number, 0]), float(spots[number, 1]), float(angles[angle])
