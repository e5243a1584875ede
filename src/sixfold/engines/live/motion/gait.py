"""Feet: which of them stands, where the other goes, and how high the pelvis may be over them.

A foot that stands stays exactly where it was set down, whatever the body does; its heel may rise about the
toe. A foot in the air is on its way to where the body will want it when it lands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sixfold.engines.live.motion import body
from sixfold.engines.live.motion.body import ANKLE_HEIGHT, FOOT, SIDES, Vector

_HOME_HALF = 0.095
_AHEAD = 0.40  # how much of a stance lies before the hip
_RUN_FROM, _RUN_TO = 1.9, 2.7
_DRAW = 0.4  # of the way, at each tick of a flight
_STRAY, _STRAY_YAW = 0.10, 0.5  # a standing foot this far from where it belongs takes a step


@dataclass(slots=True)
class Gait:
    """What a speed asks of the feet: cycles a second, the share of one on the ground, the lift in metres."""

    rate: float
    duty: float
    lift: float
    running: float


def gait(speed: float, lift: float = 1.0) -> Gait:
    """The gait of a speed in m/s."""
    pace = abs(speed)
    share = min(1.0, max(0.0, (pace - _RUN_FROM) / (_RUN_TO - _RUN_FROM)))
    running = share * share * (3 - 2 * share)
    rate = 0.98 * (max(pace, 0.55) / 1.3) ** 0.42
    return Gait(rate, 0.61 - 0.27 * running, (0.07 + 0.19 * running) * lift, running)


@dataclass(slots=True)
class BodyPose:
    """Where the body is and how it goes: x and z, yaw, m/s, rad/s."""

    x: float
    z: float
    yaw: float
    speed: float
    turn: float

    def ahead(self, seconds: float) -> tuple[float, float, float]:
        """x, z and yaw after some seconds of going on like this."""
        middle = self.yaw + self.turn * seconds / 2
        way = self.speed * seconds
        return (
            self.x + math.sin(middle) * way,
            self.z + math.cos(middle) * way,
            self.yaw + self.turn * seconds,
        )


def fresh(place: BodyPose) -> dict[str, Any]:
    """Both feet on the ground under a body."""
    feet: dict[str, Any] = {"phase": 0.05}
    for side, sign in SIDES.items():
        x, z = _home(place.x, place.z, place.yaw, sign)
        feet[side] = {"x": x, "z": z, "yaw": place.yaw, "fx": x, "fz": z, "fyaw": place.yaw, "s": -1.0}
    return feet


def advance(feet: dict[str, Any], place: BodyPose, wanted: Gait, dt: float, *, busy: bool) -> None:
    """Let the feet go on by `dt` under a body at `place`; `busy` keeps them stepping where it stands."""
    if not (busy or _strays(feet, place)) and _both_stand(feet["phase"], wanted.duty):
        return
    before = feet["phase"]
    feet["phase"] = (before + wanted.rate * dt) % 1.0
    for number, (side, sign) in enumerate(SIDES.items()):
        _foot(feet[side], (feet["phase"] + 0.5 * number) % 1.0, place, wanted, sign)


def gather(feet: dict[str, Any], place: BodyPose) -> None:
    """Draw both feet in under a body that flies."""
    for side, sign in SIDES.items():
        foot = feet[side]
        x, z = _home(place.x, place.z, place.yaw, sign)
        foot["x"] += (x - foot["x"]) * _DRAW
        foot["z"] += (z - foot["z"]) * _DRAW
        foot["yaw"] += (place.yaw - foot["yaw"]) * _DRAW


def land(feet: dict[str, Any], place: BodyPose) -> None:
    """Set both feet down under the body."""
    for side, sign in SIDES.items():
        foot = feet[side]
        foot["x"], foot["z"] = _home(place.x, place.z, place.yaw, sign)
        foot["yaw"], foot["s"] = place.yaw, -1.0
    feet["phase"] = 0.05


def _foot(foot: dict[str, float], phase: float, place: BodyPose, wanted: Gait, sign: float) -> None:
    """One foot at its own phase: standing from 0 to `duty`, in the air after that."""
    if phase < wanted.duty:
        foot["s"] = -1.0
        return
    if foot["s"] < 0:
        foot["fx"], foot["fz"], foot["fyaw"] = foot["x"], foot["z"], foot["yaw"]
    foot["s"] = share = (phase - wanted.duty) / (1 - wanted.duty)
    until = (1 - share) * (1 - wanted.duty) / wanted.rate
    x, z, yaw = place.ahead(until + _AHEAD * wanted.duty / wanted.rate)
    tx, tz = _home(x, z, yaw, sign)
    ease = share * share * (3 - 2 * share)
    foot["x"] = foot["fx"] + (tx - foot["fx"]) * ease
    foot["z"] = foot["fz"] + (tz - foot["fz"]) * ease
    foot["yaw"] = foot["fyaw"] + (yaw - foot["fyaw"]) * ease


def _home(x: float, z: float, yaw: float, sign: float) -> tuple[float, float]:
    return x + math.cos(yaw) * _HOME_HALF * sign, z - math.sin(yaw) * _HOME_HALF * sign


def _both_stand(phase: float, duty: float) -> bool:
    return phase % 0.5 < duty - 0.5 if duty > 0.5 else False


def _strays(feet: dict[str, Any], place: BodyPose) -> bool:
    for side, sign in SIDES.items():
        x, z = _home(place.x, place.z, place.yaw, sign)
        foot = feet[side]
        if math.hypot(foot["x"] - x, foot["z"] - z) > _STRAY or abs(foot["yaw"] - place.yaw) > _STRAY_YAW:
            return True
    return False


def ankles(feet: dict[str, Any], wanted: Gait, lifted: float) -> dict[str, dict[str, Any]]:
    """Ankle, toe and facing of both feet; `lifted` metres above the ground in a jump."""
    found: dict[str, dict[str, Any]] = {}
    for number, side in enumerate(SIDES):
        foot = feet[side]
        phase = (feet["phase"] + 0.5 * number) % 1.0
        planted = foot["s"] < 0 and lifted <= 0
        forward = math.sin(foot["yaw"]), 0.0, math.cos(foot["yaw"])
        tilt = _heel(phase / wanted.duty, wanted) if foot["s"] < 0 else _swing_tilt(foot["s"], wanted)
        if lifted > 0:
            tilt = 0.5 * min(1.0, lifted / 0.15)
        height = lifted + (_lift(foot["s"], wanted) if foot["s"] >= 0 else 0.0)
        toe = body.along((foot["x"], height + 0.02, foot["z"]), forward, FOOT * 0.8)
        drop, sine, cosine = ANKLE_HEIGHT - 0.02, math.sin(tilt), math.cos(tilt)
        x, y, z = body.along(toe, forward, drop * sine - FOOT * cosine)
        ankle = x, y + FOOT * sine + drop * cosine, z
        found[side] = {"ankle": ankle, "toe": toe, "forward": forward, "planted": planted}
    return found


def _heel(share: float, wanted: Gait) -> float:
    """How far a standing foot's heel has risen about its toe, in radians."""
    start = 0.58
    if share <= start or share > 1.0:
        return 0.0
    rise = (share - start) / (1 - start)
    return (0.62 + 0.25 * wanted.running) * rise * rise * (3 - 2 * rise) * min(1.0, wanted.rate / 0.9)


def _swing_tilt(share: float, wanted: Gait) -> float:
    start = (0.62 + 0.25 * wanted.running) * min(1.0, wanted.rate / 0.9)
    rest = min(1.0, share / 0.65)
    return start * (1 - rest * rest * (3 - 2 * rest)) - 0.22 * math.sin(math.pi * share) ** 2 * (share > 0.5)


def _lift(share: float, wanted: Gait) -> float:
    return wanted.lift * math.sin(math.pi * share**0.8) ** 1.3


def ceiling(hips: dict[str, Vector], set_down: dict[str, dict[str, Any]]) -> float:
    """How much the pelvis has to come down so that every standing foot is in reach."""
    excess = 0.0
    for side, hip in hips.items():
        if not set_down[side]["planted"]:
            continue
        ankle: Vector = set_down[side]["ankle"]
        flat = math.hypot(hip[0] - ankle[0], hip[2] - ankle[2])
        highest = ankle[1] + math.sqrt(max(0.0, body.REACH**2 - flat * flat))
        excess = max(excess, hip[1] - highest)
    return excess
