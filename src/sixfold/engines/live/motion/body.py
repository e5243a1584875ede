"""The skeleton: joints in meters with y up; at yaw 0 it faces +z, with +x on its left.

A pose of the upper body is a set of angles (`ANGLES`) that actions provide and that blend by weight. The legs
follow from pelvis and ankles by inverse kinematics. Points are tuples of three floats, because for so few
points numpy's calls cost five times as much as the arithmetic.
"""

from __future__ import annotations

import math

Vector = tuple[float, float, float]
Axes = tuple[Vector, Vector, Vector]  # left, up, forward
Angles = dict[str, float]  # missing angles are 0

SIDES = {"left": 1.0, "right": -1.0}
JOINTS = (
    "pelvis", "spine", "chest", "neck", "head",
    *(f"{side}_{part}" for side in SIDES for part in
      ("shoulder", "elbow", "wrist", "hand", "hip", "knee", "ankle", "toe")),
)  # fmt: skip

HIP_HEIGHT, ANKLE_HEIGHT = 0.946, 0.08
THIGH, SHIN, FOOT = 0.45, 0.43, 0.16
REACH = 0.992 * (THIGH + SHIN)
HIP_HALF, SHOULDER_HALF = 0.095, 0.19
_SPINE, _CHEST, _NECK, _HEAD = 0.14, 0.30, 0.10, 0.16
_UPPER_ARM, _FOREARM, _HAND = 0.29, 0.25, 0.09

# Radians and meters. Pitch leans forward, roll leans to the left, yaw turns to the left. An arm hangs at 0;
# `raise` moves it forward, `out` moves it sideways, and `twist` turns a bent forearm inward.
ANGLES = (
    "down", "back", "aside", "hip_yaw", "hip_roll",
    "pitch", "roll", "yaw", "nod", "look",
    *(f"{side}_{part}" for side in SIDES for part in ("raise", "out", "elbow", "twist")),
)  # fmt: skip

_STILL: Angles = dict.fromkeys(ANGLES, 0.0)


def angles(**values: float) -> Angles:
    return values


def blend(*poses: tuple[Angles, float]) -> Angles:
    """Return the weighted sum of poses, with all angles."""
    blended = _STILL.copy()
    for pose, weight in poses:
        for name, value in pose.items():
            blended[name] += value * weight
    return blended


def along(point: Vector, direction: Vector, meters: float) -> Vector:
    return (
        point[0] + direction[0] * meters,
        point[1] + direction[1] * meters,
        point[2] + direction[2] * meters,
    )


def difference(start: Vector, end: Vector) -> Vector:
    """Return the vector from one point to another."""
    return end[0] - start[0], end[1] - start[1], end[2] - start[2]


def length(vector: Vector) -> float:
    x, y, z = vector
    return math.sqrt(x * x + y * y + z * z)


def rotated_axes(yaw: float, pitch: float = 0.0, roll: float = 0.0) -> Axes:
    cy, sy, cp, sp = math.cos(yaw), math.sin(yaw), math.cos(pitch), math.sin(pitch)
    cr, sr = math.cos(roll), math.sin(roll)
    return (
        (cy * cr - sy * sp * sr, -cp * sr, -sy * cr - cy * sp * sr),
        (cy * sr + sy * sp * cr, cp * cr, -sy * sr + cy * sp * cr),
        (sy * cp, -sp, cy * cp),
    )


def hips(pelvis: Vector, yaw: float, pose: Angles) -> dict[str, Vector]:
    """Return the hip joints of both legs."""
    left, _, _ = rotated_axes(yaw + pose["hip_yaw"], 0.0, pose["hip_roll"])
    return {side: along(pelvis, left, sign * HIP_HALF) for side, sign in SIDES.items()}


def knee(hip: Vector, ankle: Vector, forward: Vector) -> tuple[Vector, Vector]:
    """Return the knee of a leg, bent toward `forward`, and the ankle, which is moved within reach."""
    offset = difference(hip, ankle)
    distance = max(length(offset), 1e-6)
    direction = _scaled(offset, 1 / distance)
    distance = min(distance, REACH)
    x, y, z = forward
    pole = along(forward, direction, -(x * direction[0] + y * direction[1] + z * direction[2]))
    near = (THIGH**2 - SHIN**2 + distance**2) / (2 * distance)
    aside = math.sqrt(max(0.0, THIGH**2 - near**2)) / max(length(pole), 1e-6)
    return along(along(hip, direction, near), pole, aside), along(hip, direction, distance)


def torso(pelvis: Vector, yaw: float, pose: Angles) -> dict[str, Vector]:
    lean, roll, twist = pose["pitch"], pose["roll"], pose["yaw"]
    low = rotated_axes(
        yaw + pose["hip_yaw"] * 0.6 + twist * 0.3, lean * 0.5, roll * 0.5 + pose["hip_roll"] * 0.4
    )
    high = rotated_axes(yaw + twist, lean, roll)
    crown = rotated_axes(yaw + twist * 0.4 + pose["look"], lean * 0.4 + pose["nod"], roll * 0.4)
    spine = along(pelvis, low[1], _SPINE)
    chest = along(spine, high[1], _CHEST)
    neck = along(chest, high[1], _NECK)
    head = along(along(neck, crown[1], _HEAD), crown[2], 0.02)
    joints = {"pelvis": pelvis, "spine": spine, "chest": chest, "neck": neck, "head": head}
    for side, sign in SIDES.items():
        shoulder = along(along(chest, high[0], sign * SHOULDER_HALF), high[1], 0.02)
        joints |= _arm(side, shoulder, high, pose)
    return joints


def _arm(side: str, shoulder: Vector, axes: Axes, pose: Angles) -> dict[str, Vector]:
    sign = SIDES[side]
    raised, out = pose[f"{side}_raise"], pose[f"{side}_out"]
    bend, twist = pose[f"{side}_elbow"], pose[f"{side}_twist"]
    cr, sr, co = math.cos(raised), math.sin(raised), math.cos(out)
    aside, down, ahead = upper = math.sin(out) * sign, -co * cr, co * sr
    # The forearm bends toward the front of a hanging arm, turned inward by `twist`.
    inward = (down * cr - ahead * sr) * sign, -aside * cr * sign, aside * sr * sign
    towards = along(_scaled((0.0, sr, cr), math.cos(twist)), inward, math.sin(twist))
    fore = _to_world(axes, along(_scaled(upper, math.cos(bend)), towards, math.sin(bend)))
    elbow = along(shoulder, _to_world(axes, upper), _UPPER_ARM)
    wrist = along(elbow, fore, _FOREARM)
    return {
        f"{side}_shoulder": shoulder,
        f"{side}_elbow": elbow,
        f"{side}_wrist": wrist,
        f"{side}_hand": along(wrist, fore, _HAND),
    }


def _scaled(vector: Vector, factor: float) -> Vector:
    return vector[0] * factor, vector[1] * factor, vector[2] * factor


def _to_world(axes: Axes, vector: Vector) -> Vector:
    """Convert a vector in a frame's axes to world coordinates."""
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = axes
    a, b, c = vector
    return ax * a + bx * b + cx * c, ay * a + by * b + cy * c, az * a + bz * b + cz * c
