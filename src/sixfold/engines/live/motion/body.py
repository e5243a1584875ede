"""The skeleton: joints in metres, y up, facing +z at yaw 0, so that +x is its left.

A pose of the upper body is a vector of angles (`ANGLES`), which acts give and which blend by weight. Legs
follow from the pelvis and the ankles: the knee of a leg is where both bones meet.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]

SIDES = {"left": 1.0, "right": -1.0}
JOINTS = (
    "pelvis", "spine", "chest", "neck", "head",
    *(f"{side}_{part}" for side in SIDES for part in
      ("shoulder", "elbow", "wrist", "hand", "hip", "knee", "ankle", "toe")),
)  # fmt: skip
BONES = (
    ("pelvis", "spine"), ("spine", "chest"), ("chest", "neck"), ("neck", "head"),
    *((f"{side}_{a}", f"{side}_{b}") for side in SIDES for a, b in
      (("shoulder", "elbow"), ("elbow", "wrist"), ("wrist", "hand"), ("hip", "knee"), ("knee", "ankle"),
       ("ankle", "toe"))),
    *(bone for side in SIDES for bone in (("chest", f"{side}_shoulder"), ("pelvis", f"{side}_hip"))),
)  # fmt: skip

HIP_HEIGHT, ANKLE_HEIGHT = 0.946, 0.08
THIGH, SHIN, FOOT = 0.45, 0.43, 0.16
REACH = 0.992 * (THIGH + SHIN)
HIP_HALF, SHOULDER_HALF = 0.095, 0.19
_SPINE, _CHEST, _NECK, _HEAD = 0.14, 0.30, 0.10, 0.16
_UPPER_ARM, _FOREARM, _HAND = 0.29, 0.25, 0.09

# Radians and metres. Pitch leans forward, roll to the left, yaw turns to the left; an arm hangs at 0, goes
# forward by `raise` and sideways by `out`, and `twist` turns a bent forearm inward.
ANGLES = (
    "down", "back", "aside", "hip_yaw", "hip_roll",
    "pitch", "roll", "yaw", "nod", "look",
    *(f"{side}_{part}" for side in SIDES for part in ("raise", "out", "elbow", "twist")),
)  # fmt: skip
INDEX = {name: number for number, name in enumerate(ANGLES)}


def angles(**given: float) -> Vector:
    """A vector of angles, 0 where nothing is given."""
    vector = np.zeros(len(ANGLES))
    for name, value in given.items():
        vector[INDEX[name]] = value
    return vector


def turned(yaw: float, pitch: float = 0.0, roll: float = 0.0) -> Vector:
    """The axes (left, up, forward, as columns) of something turned about y, then leant."""
    cy, sy, cp, sp, cr, sr = (f(a) for a in (yaw, pitch, roll) for f in (math.cos, math.sin))
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_x = np.array([[1, 0, 0], [0, cp, -sp], [0, sp, cp]])
    about_z = np.array([[cr, sr, 0], [-sr, cr, 0], [0, 0, 1]])
    return about_y @ about_x @ about_z


def hips(pelvis: Vector, yaw: float, pose: Vector) -> dict[str, Vector]:
    """Where both legs begin."""
    axes = turned(yaw + pose[INDEX["hip_yaw"]], 0.0, pose[INDEX["hip_roll"]])
    return {side: pelvis + axes[:, 0] * (sign * HIP_HALF) for side, sign in SIDES.items()}


def knee(hip: Vector, ankle: Vector, forward: Vector) -> tuple[Vector, Vector]:
    """The knee of a leg, bent towards `forward`, and its ankle, nearer where the leg is too short."""
    reach = ankle - hip
    length = float(np.linalg.norm(reach))
    if length > REACH:
        reach *= REACH / length
        length = REACH
    along = reach / max(length, 1e-6)
    pole = forward - along * float(forward @ along)
    pole /= max(float(np.linalg.norm(pole)), 1e-6)
    near = (THIGH**2 - SHIN**2 + length**2) / (2 * max(length, 1e-6))
    aside = math.sqrt(max(0.0, THIGH**2 - near**2))
    return hip + along * near + pole * aside, hip + reach


def torso(pelvis: Vector, yaw: float, pose: Vector) -> dict[str, Vector]:
    """Everything above the pelvis."""
    at = INDEX
    lean, roll, twist = pose[at["pitch"]], pose[at["roll"]], pose[at["yaw"]]
    low = turned(
        yaw + pose[at["hip_yaw"]] * 0.6 + twist * 0.3, lean * 0.5, roll * 0.5 + pose[at["hip_roll"]] * 0.4
    )
    high = turned(yaw + twist, lean, roll)
    crown = turned(yaw + twist * 0.4 + pose[at["look"]], lean * 0.4 + pose[at["nod"]], roll * 0.4)
    joints = {"pelvis": pelvis, "spine": pelvis + low[:, 1] * _SPINE}
    joints["chest"] = joints["spine"] + high[:, 1] * _CHEST
    joints["neck"] = joints["chest"] + high[:, 1] * _NECK
    joints["head"] = joints["neck"] + crown[:, 1] * _HEAD + crown[:, 2] * 0.02
    for side, sign in SIDES.items():
        shoulder = joints["chest"] + high[:, 0] * (sign * SHOULDER_HALF) + high[:, 1] * 0.02
        joints |= _arm(side, shoulder, high, pose)
    return joints


def _arm(side: str, shoulder: Vector, axes: Vector, pose: Vector) -> dict[str, Vector]:
    raised, out, bend, twist = (pose[INDEX[f"{side}_{part}"]] for part in ("raise", "out", "elbow", "twist"))
    sign = SIDES[side]
    upper = np.array(
        [math.sin(out) * sign, -math.cos(out) * math.cos(raised), math.cos(out) * math.sin(raised)]
    )
    # the forearm bends towards what is in front of a hanging arm, turned inward by `twist`
    front = np.array([0.0, math.sin(raised), math.cos(raised)])
    inward = np.cross(upper, front) * sign
    towards = front * math.cos(twist) + inward * math.sin(twist)
    fore = upper * math.cos(bend) + towards * math.sin(bend)
    elbow = shoulder + axes @ upper * _UPPER_ARM
    wrist = elbow + axes @ fore * _FOREARM
    return {
        f"{side}_shoulder": shoulder,
        f"{side}_elbow": elbow,
        f"{side}_wrist": wrist,
        f"{side}_hand": wrist + axes @ fore * _HAND,
    }
