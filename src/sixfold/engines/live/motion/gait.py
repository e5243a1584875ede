"""Placement of the feet and the height of the pelvis above them.

A planted foot keeps its position while the body moves; only its heel may rise around the toe. A foot in the
air moves to the position that the body will need when the foot lands.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from sixfold.engines.live.motion import body
from sixfold.engines.live.motion.body import ANKLE_HEIGHT, FOOT, SIDES, Vector

_HOME_HALF = 0.095
_AHEAD = 0.40  # fraction of a stance that is in front of the hip
_RUN_FROM, _RUN_TO = 1.9, 2.7
# The fraction of the distance by which feet are drawn in at each tick of a flight.
_DRAW = 0.4
# A planted foot farther from its rest position, in meters or radians, takes a step.
_STRAY, _STRAY_YAW = 0.10, 0.5


class Gait(msgspec.Struct):
    """A gait: cycles per second, fraction of a cycle on the ground, and lift of the feet in meters.

    `running` is 0 for walking and 1 for running.
    """

    rate: float
    duty: float
    lift: float
    running: float


def gait(speed: float, lift: float = 1.0) -> Gait:
    pace = abs(speed)
    share = min(1.0, max(0.0, (pace - _RUN_FROM) / (_RUN_TO - _RUN_FROM)))
    running = share * share * (3 - 2 * share)
    rate = 0.98 * (max(pace, 0.55) / 1.3) ** 0.42
    return Gait(rate, 0.61 - 0.27 * running, (0.07 + 0.19 * running) * lift, running)


class BodyPose(msgspec.Struct):
    """The position and motion of the body: x, z, yaw, speed in m/s and turn in rad/s."""

    x: float
    z: float
    yaw: float
    speed: float
    turn: float

    def ahead(self, seconds: float) -> tuple[float, float, float]:
        """Return x, z and yaw after `seconds` of unchanged motion."""
        middle = self.yaw + self.turn * seconds / 2
        distance = self.speed * seconds
        return (
            self.x + math.sin(middle) * distance,
            self.z + math.cos(middle) * distance,
            self.yaw + self.turn * seconds,
        )


def initial(pose: BodyPose) -> dict[str, Any]:
    """Return the state of both feet on the ground under a body."""
    feet: dict[str, Any] = {"phase": 0.05}
    for side, sign in SIDES.items():
        x, z = _home(pose.x, pose.z, pose.yaw, sign)
        feet[side] = {"x": x, "z": z, "yaw": pose.yaw, "fx": x, "fz": z, "fyaw": pose.yaw, "s": -1.0}
    return feet


def advance(feet: dict[str, Any], pose: BodyPose, gait: Gait, dt: float, *, busy: bool) -> None:
    """Advance the feet by `dt` seconds; with `busy`, the feet step on the spot."""
    if not (busy or _strays(feet, pose)) and _both_stand(feet["phase"], gait.duty):
        return
    before = feet["phase"]
    feet["phase"] = (before + gait.rate * dt) % 1.0
    for number, (side, sign) in enumerate(SIDES.items()):
        _foot(feet[side], (feet["phase"] + 0.5 * number) % 1.0, pose, gait, sign)


def gather(feet: dict[str, Any], pose: BodyPose) -> None:
    """Draw both feet in under a body in the air."""
    for side, sign in SIDES.items():
        foot = feet[side]
        x, z = _home(pose.x, pose.z, pose.yaw, sign)
        foot["x"] += (x - foot["x"]) * _DRAW
        foot["z"] += (z - foot["z"]) * _DRAW
        foot["yaw"] += (pose.yaw - foot["yaw"]) * _DRAW


def land(feet: dict[str, Any], pose: BodyPose) -> None:
    """Plant both feet under the body."""
    for side, sign in SIDES.items():
        foot = feet[side]
        foot["x"], foot["z"] = _home(pose.x, pose.z, pose.yaw, sign)
        foot["yaw"], foot["s"] = pose.yaw, -1.0
    feet["phase"] = 0.05


def _foot(foot: dict[str, float], phase: float, pose: BodyPose, gait: Gait, sign: float) -> None:
    """Update a foot by its phase: planted from 0 to `duty`, in the air after that."""
    if phase < gait.duty:
        foot["s"] = -1.0
        return
    if foot["s"] < 0:
        foot["fx"], foot["fz"], foot["fyaw"] = foot["x"], foot["z"], foot["yaw"]
    foot["s"] = share = (phase - gait.duty) / (1 - gait.duty)
    until = (1 - share) * (1 - gait.duty) / gait.rate
    x, z, yaw = pose.ahead(until + _AHEAD * gait.duty / gait.rate)
    tx, tz = _home(x, z, yaw, sign)
    ease = share * share * (3 - 2 * share)
    foot["x"] = foot["fx"] + (tx - foot["fx"]) * ease
    foot["z"] = foot["fz"] + (tz - foot["fz"]) * ease
    foot["yaw"] = foot["fyaw"] + (yaw - foot["fyaw"]) * ease


def _home(x: float, z: float, yaw: float, sign: float) -> tuple[float, float]:
    return x + math.cos(yaw) * _HOME_HALF * sign, z - math.sin(yaw) * _HOME_HALF * sign


def _both_stand(phase: float, duty: float) -> bool:
    return phase % 0.5 < duty - 0.5 if duty > 0.5 else False


def _strays(feet: dict[str, Any], pose: BodyPose) -> bool:
    for side, sign in SIDES.items():
        x, z = _home(pose.x, pose.z, pose.yaw, sign)
        foot = feet[side]
        if math.hypot(foot["x"] - x, foot["z"] - z) > _STRAY or abs(foot["yaw"] - pose.yaw) > _STRAY_YAW:
            return True
    return False


def ankles(feet: dict[str, Any], gait: Gait, jump_height: float) -> dict[str, dict[str, Any]]:
    """Return the ankle, toe and direction of both feet; `jump_height` is the height of a jump in meters."""
    result: dict[str, dict[str, Any]] = {}
    for number, side in enumerate(SIDES):
        foot = feet[side]
        phase = (feet["phase"] + 0.5 * number) % 1.0
        planted = foot["s"] < 0 and jump_height <= 0
        forward = math.sin(foot["yaw"]), 0.0, math.cos(foot["yaw"])
        tilt = _heel(phase / gait.duty, gait) if foot["s"] < 0 else _swing_tilt(foot["s"], gait)
        if jump_height > 0:
            tilt = 0.5 * min(1.0, jump_height / 0.15)
        height = jump_height + (_lift(foot["s"], gait) if foot["s"] >= 0 else 0.0)
        toe = body.along((foot["x"], height + 0.02, foot["z"]), forward, FOOT * 0.8)
        drop, sine, cosine = ANKLE_HEIGHT - 0.02, math.sin(tilt), math.cos(tilt)
        x, y, z = body.along(toe, forward, drop * sine - FOOT * cosine)
        ankle = x, y + FOOT * sine + drop * cosine, z
        result[side] = {"ankle": ankle, "toe": toe, "forward": forward, "planted": planted}
    return result


def _heel(share: float, gait: Gait) -> float:
    """Return the angle of a planted foot's heel above its toe, in radians."""
    start = 0.58
    if share <= start or share > 1.0:
        return 0.0
    rise = (share - start) / (1 - start)
    return (0.62 + 0.25 * gait.running) * rise * rise * (3 - 2 * rise) * min(1.0, gait.rate / 0.9)


def _swing_tilt(share: float, gait: Gait) -> float:
    start = (0.62 + 0.25 * gait.running) * min(1.0, gait.rate / 0.9)
    part = min(1.0, share / 0.65)
    return start * (1 - part * part * (3 - 2 * part)) - 0.22 * math.sin(math.pi * share) ** 2 * (share > 0.5)


def _lift(share: float, gait: Gait) -> float:
    return gait.lift * math.sin(math.pi * share**0.8) ** 1.3


def ceiling(hips: dict[str, Vector], feet: dict[str, dict[str, Any]]) -> float:
    """Return the distance in meters by which to lower the pelvis until all planted feet are in reach."""
    excess = 0.0
    for side, hip in hips.items():
        if not feet[side]["planted"]:
            continue
        ankle: Vector = feet[side]["ankle"]
        flat = math.hypot(hip[0] - ankle[0], hip[2] - ankle[2])
        highest = ankle[1] + math.sqrt(max(0.0, body.REACH**2 - flat * flat))
        excess = max(excess, hip[1] - highest)
    return excess
