"""A body over time: what it is asked for, how it gets there without a jolt, and its pose at each tick.

The whole state is a dictionary of numbers and texts, so that it can stop in one process and go on in another.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sixfold.core.work.live import Controls
from sixfold.engines.live.motion import acts, body, gait
from sixfold.engines.live.motion.acts import BY_NAME, POSES, UPPER, Doing, Moment
from sixfold.engines.live.motion.body import INDEX, Vector

_PUSH, _BRAKE = 2.2, 3.0  # m/s²
_TURN_RATE, _TURN_PUSH = 2.4, 9.0  # rad/s, rad/s²
_BLEND_SECONDS = 0.22
_ARRIVED = 0.3
_KEY_TURN = 1.8
_CROUCH, _LAND = 0.34, 0.36  # seconds before and after a jump's flight
_JUMP_HEIGHT, _GRAVITY = 0.38, 9.81
_FLIGHT = 2 * math.sqrt(2 * _JUMP_HEIGHT / _GRAVITY)
_JUMP_TIMES = (0.0, 0.2, _CROUCH, _CROUCH + _FLIGHT / 2, _CROUCH + _FLIGHT, _CROUCH + _FLIGHT + 0.13,
               _CROUCH + _FLIGHT + _LAND)  # fmt: skip
_BENDS = (0.0, 1.0, 0.1, 0.12, 0.2, 0.8, 0.0)
_ARMS = (0.0, -0.4, 0.55, 1.0, 0.6, 0.15, 0.0)
_ARM_INDEX = [INDEX[name] for name in body.ANGLES if name.startswith(("left_", "right_"))]
_HEAD_INDEX = [INDEX[name] for name in ("nod", "look", "yaw")]
_KEYS = {"arrowup": "w", "arrowleft": "a", "arrowdown": "s", "arrowright": "d", "up": "w", "left": "a",
         "down": "s", "right": "d"}  # fmt: skip


def begin(prompt: str) -> dict[str, Any]:
    """A body that stands at the origin, facing +z, with a prompt to follow."""
    place = gait.Place(0.0, 0.0, 0.0, 0.0, 0.0)
    return {
        "t": 0.0, "x": 0.0, "z": 0.0, "yaw": 0.0, "speed": 0.0, "turn": 0.0, "sink": 0.0, "jump": -1.0,
        "prompt": prompt, "part": 0, "since": 0.0, "turned": 0.0, "waypoints": [], "weights": {"stand": 1.0},
        "feet": gait.fresh(place),
    }  # fmt: skip


def hear(state: dict[str, Any], controls: Controls) -> None:
    """Take in a new prompt or new waypoints."""
    if controls.prompt is not None:
        state["prompt"], state["part"], state["since"], state["turned"] = controls.prompt, 0, 0.0, 0.0
    if controls.waypoints is not None:
        state["waypoints"] = [list(point) for point in controls.waypoints]


def advance(state: dict[str, Any], keys: tuple[str, ...], dt: float) -> dict[str, Any]:
    """Go on by `dt` seconds; gives the pose."""
    state["t"] += dt
    state["since"] += dt
    doing, speed, turn, busy = _wish(state, frozenset(_KEYS.get(key, key) for key in keys))
    _ease_weights(state["weights"], _targets(doing, moving=abs(state["speed"]) > 0.25 and abs(speed) > 0), dt)
    _jump(state, doing, dt)
    settled = 1.0 - min(1.0, 1.6 * state["weights"].get("sit", 0.0))
    _move(state, speed * settled * settled, turn * settled, dt)
    place = gait.Place(state["x"], state["z"], state["yaw"], state["speed"], state["turn"])
    wanted = gait.gait(state["speed"], 2.6 if "march" in doing.acts else 1.0)
    moving = abs(state["speed"]) > 0.08 or abs(state["turn"]) > 0.25 or busy
    if state["jump"] < 0 or state["jump"] < _CROUCH:
        gait.advance(state["feet"], place, wanted, dt, busy=moving and state["jump"] < 0)
    return _pose(state, wanted, dt)


# -- what is wished --------------------------------------------------------------------------------


def _wish(state: dict[str, Any], keys: frozenset[str]) -> tuple[Doing, float, float, bool]:
    """The acts, the speed, the turn, and whether the feet step where they stand."""
    if keys & frozenset("wasd"):
        return _by_keys(keys)
    doing = _part(state)
    chosen = [BY_NAME[name] for name in doing.acts]
    speed = next((act.speed for act in chosen if act.speed), 0.0) * doing.pace
    if state["waypoints"]:
        return _by_waypoints(state, doing, speed)
    turn = doing.turn * max(abs(speed), 0.8)
    goal = next((act.turn for act in chosen if act.turn), 0.0)
    if goal and (any(act.name == "spin" for act in chosen) or abs(state["turned"]) < abs(goal)):
        turn += math.copysign(min(2.0, abs(goal) * 1.3), goal)
        if not any(act.name == "spin" for act in chosen):  # ease out before the end
            left = abs(goal) - abs(state["turned"])
            turn = math.copysign(min(abs(turn), math.sqrt(2 * _TURN_PUSH * 0.35 * max(left, 0.0))), goal)
    return doing, speed, turn, any(act.steps for act in chosen) and "dance" in doing.acts


def _by_keys(keys: frozenset[str]) -> tuple[Doing, float, float, bool]:
    turn = _KEY_TURN * (("a" in keys) - ("d" in keys))
    if "w" in keys:
        run = "shift" in keys
        return (
            Doing(("run",) if run else ("walk",)),
            BY_NAME["run" if run else "walk"].speed,
            turn * 0.6,
            False,
        )
    if "s" in keys:
        return Doing(("back",)), BY_NAME["back"].speed, turn * 0.6, False
    return Doing(("stand",)), 0.0, turn, False


def _by_waypoints(state: dict[str, Any], doing: Doing, speed: float) -> tuple[Doing, float, float, bool]:
    x, z = state["waypoints"][0]
    dx, dz = x - state["x"], z - state["z"]
    distance = math.hypot(dx, dz)
    if distance < _ARRIVED:
        state["waypoints"].pop(0)
        if not state["waypoints"]:
            state["part"], state["since"], state["prompt"] = 0, 0.0, "stand"
        return doing, speed, 0.0, False
    off = (math.atan2(dx, dz) - state["yaw"] + math.pi) % (2 * math.pi) - math.pi
    cruise = speed if speed > 0 else BY_NAME["walk"].speed
    last = len(state["waypoints"]) == 1
    slow = min(1.0, 0.25 + distance / 1.2) if last else 1.0
    speed = cruise * slow * max(0.0, math.cos(min(abs(off), math.pi / 2)))
    gaits = tuple(name for name in doing.acts if BY_NAME[name].speed > 0 or name in UPPER)
    moving = gaits if any(BY_NAME[name].speed for name in gaits) else ("walk", *gaits)
    return Doing(moving), speed, max(-_TURN_RATE, min(_TURN_RATE, 3.0 * off)), False


def _part(state: dict[str, Any]) -> Doing:
    """The part of the prompt that is due; the last one goes on for ever."""
    parts = acts.read(state["prompt"])
    while state["part"] < len(parts) - 1 and state["since"] >= parts[state["part"]].seconds:
        state["since"] -= parts[state["part"]].seconds
        state["part"] += 1
        state["turned"] = 0.0
    return parts[min(state["part"], len(parts) - 1)]


# -- getting there ---------------------------------------------------------------------------------


def _targets(doing: Doing, *, moving: bool) -> dict[str, float]:
    targets = dict.fromkeys(doing.acts, 1.0)
    if all(name in UPPER for name in doing.acts):
        targets["walk" if moving else "stand"] = 1.0
    return targets


def _ease_weights(weights: dict[str, float], targets: dict[str, float], dt: float) -> None:
    share = 1 - math.exp(-dt / _BLEND_SECONDS)
    for name in {**weights, **targets}:
        weights[name] = weights.get(name, 0.0) + (targets.get(name, 0.0) - weights.get(name, 0.0)) * share
        if weights[name] < 0.002 and name not in targets:
            del weights[name]


def _move(state: dict[str, Any], speed: float, turn: float, dt: float) -> None:
    push = _PUSH if abs(speed) > abs(state["speed"]) else _BRAKE
    state["speed"] += max(-push * dt, min(push * dt, speed - state["speed"]))
    state["turn"] += max(-_TURN_PUSH * dt, min(_TURN_PUSH * dt, turn - state["turn"]))
    middle = state["yaw"] + state["turn"] * dt / 2
    state["x"] += math.sin(middle) * state["speed"] * dt
    state["z"] += math.cos(middle) * state["speed"] * dt
    state["yaw"] += state["turn"] * dt
    state["turned"] += state["turn"] * dt


def _jump(state: dict[str, Any], doing: Doing, dt: float) -> None:
    """The seconds of a jump: crouch, flight, landing; -1 on the ground."""
    whole = _CROUCH + _FLIGHT + _LAND
    if state["jump"] >= 0:
        before = state["jump"]
        state["jump"] += dt
        if before < _CROUCH + _FLIGHT <= state["jump"]:
            gait.land(state["feet"], gait.Place(state["x"], state["z"], state["yaw"], state["speed"], 0.0))
        if state["jump"] >= whole:
            state["jump"] = -1.0
    elif "jump" in doing.acts and state["weights"].get("jump", 0.0) > 0.6:
        state["jump"] = 0.0


def _height(jump: float) -> tuple[float, float, float]:
    """Of a jump's second: metres in the air, how deep the knees bend, how high the arms are (0 to 1)."""
    if jump < 0:
        return 0.0, 0.0, 0.0
    t = jump - _CROUCH
    rise = math.sqrt(2 * _JUMP_HEIGHT * _GRAVITY) * t - _GRAVITY * t * t / 2 if 0 < t < _FLIGHT else 0.0
    return (
        max(0.0, rise),
        float(np.interp(jump, _JUMP_TIMES, _BENDS)),
        float(np.interp(jump, _JUMP_TIMES, _ARMS)),
    )


# -- the pose --------------------------------------------------------------------------------------


def _blend(state: dict[str, Any]) -> Vector:
    moment = Moment(state["t"], state["feet"]["phase"], state["speed"])
    weights: dict[str, float] = state["weights"]
    whole = {name: weight for name, weight in weights.items() if name not in UPPER}
    total = sum(whole.values())
    vector = body.angles() if total > 1e-6 else POSES["stand"](moment)
    for name, weight in whole.items():
        vector = vector + POSES[name](moment) * (weight / total)
    upper = {name: weight for name, weight in weights.items() if name in UPPER}
    cover = min(1.0, sum(upper.values()))
    if cover > 0:
        over = sum((POSES[name](moment) * weight for name, weight in upper.items()), start=body.angles())
        over = over / sum(upper.values())
        index = _ARM_INDEX + _HEAD_INDEX
        vector[index] = vector[index] * (1 - cover) + over[index] * cover
    return vector


def _pose(state: dict[str, Any], wanted: gait.Gait, dt: float) -> dict[str, Any]:
    vector = _blend(state)
    air, bend, arms = _height(state["jump"])
    vector[[INDEX["left_raise"], INDEX["right_raise"]]] += 1.7 * arms
    vector[INDEX["pitch"]] += 0.35 * bend
    vector[INDEX["back"]] += 0.08 * bend
    axes = body.turned(state["yaw"])
    pelvis = np.array([state["x"], body.HIP_HEIGHT + air - vector[INDEX["down"]] - 0.26 * bend, state["z"]])
    pelvis = pelvis + axes[:, 0] * vector[INDEX["aside"]] - axes[:, 2] * vector[INDEX["back"]]
    if air > 0:
        gait.gather(state["feet"], gait.Place(state["x"], state["z"], state["yaw"], state["speed"], 0.0))
    set_down = gait.ankles(state["feet"], wanted, air)
    excess = gait.ceiling(body.hips(pelvis, state["yaw"], vector), set_down)
    eased = state["sink"] + (excess - state["sink"]) * (1 - math.exp(-dt / 0.09))
    state["sink"] = float(max(excess, eased)) if air <= 0 else 0.0
    pelvis[1] -= state["sink"]
    joints = body.torso(pelvis, state["yaw"], vector)
    for side, hip in body.hips(pelvis, state["yaw"], vector).items():
        foot = set_down[side]
        facing = foot["forward"] + axes[:, 2]
        knee, ankle = body.knee(hip, foot["ankle"], facing / max(float(np.linalg.norm(facing)), 1e-6))
        joints |= {f"{side}_hip": hip, f"{side}_knee": knee, f"{side}_ankle": ankle,
                   f"{side}_toe": foot["toe"] + (ankle - foot["ankle"])}  # fmt: skip
    return {
        "root": {"position": _rounded(pelvis), "yaw": round(state["yaw"], 4)},
        "joints": {name: _rounded(joints[name]) for name in body.JOINTS},
        "contacts": {side: bool(set_down[side]["planted"]) for side in body.SIDES},
    }


def _rounded(vector: Vector) -> list[float]:
    return [round(float(value), 4) for value in vector]
