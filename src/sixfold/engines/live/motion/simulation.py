"""Simulation of a body over time: its actions, smooth motion, and pose at each tick.

The state is a dictionary of numbers and strings, from which another process can continue.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from typing import Any

from sixfold.core.sessions.engine import Controls
from sixfold.engines.live.motion import actions, body, gait
from sixfold.engines.live.motion.actions import BY_NAME, POSES, UPPER, ActionMoment, CurrentAction
from sixfold.engines.live.motion.body import Angles, Vector, along

_PUSH, _BRAKE = 2.2, 3.0  # m/s²
_TURN_RATE, _TURN_PUSH = 2.4, 9.0  # rad/s, rad/s²
_BLEND_SECONDS = 0.22
_ARRIVAL_DISTANCE = 0.3
_KEY_TURN = 1.8
_CROUCH, _LAND = 0.34, 0.36  # seconds before and after a jump's flight
_JUMP_HEIGHT, _GRAVITY = 0.38, 9.81
_FLIGHT = 2 * math.sqrt(2 * _JUMP_HEIGHT / _GRAVITY)
_JUMP_TIMES = (0.0, 0.2, _CROUCH, _CROUCH + _FLIGHT / 2, _CROUCH + _FLIGHT, _CROUCH + _FLIGHT + 0.13,
               _CROUCH + _FLIGHT + _LAND)  # fmt: skip
_BENDS = (0.0, 1.0, 0.1, 0.12, 0.2, 0.8, 0.0)
_ARMS = (0.0, -0.4, 0.55, 1.0, 0.6, 0.15, 0.0)
_UPPER_ANGLES = (
    *(name for name in body.ANGLES if name.startswith(("left_", "right_"))),
    "nod",
    "look",
    "yaw",
)


def begin(prompt: str) -> dict[str, Any]:
    """Return the state of a body that stands at the origin and faces +z."""
    pose = gait.BodyPose(0.0, 0.0, 0.0, 0.0, 0.0)
    return {
        "t": 0.0, "x": 0.0, "z": 0.0, "yaw": 0.0, "speed": 0.0, "turn": 0.0, "sink": 0.0, "jump": -1.0,
        "prompt": prompt, "part": 0, "since": 0.0, "turned": 0.0, "waypoints": [], "weights": {"stand": 1.0},
        "feet": gait.initial(pose),
    }  # fmt: skip


def copy(state: Mapping[str, Any]) -> dict[str, Any]:
    feet: dict[str, Any] = state["feet"]
    return {
        **state,
        "waypoints": [list(point) for point in state["waypoints"]],
        "weights": dict(state["weights"]),
        "feet": {"phase": feet["phase"], **{side: dict(feet[side]) for side in body.SIDES}},
    }


def apply_controls(state: dict[str, Any], controls: Controls) -> None:
    """Set a new prompt or new waypoints."""
    if controls.prompt is not None:
        state["prompt"], state["part"], state["since"], state["turned"] = controls.prompt, 0, 0.0, 0.0
    if controls.waypoints is not None:
        state["waypoints"] = [list(point) for point in controls.waypoints]


def advance(state: dict[str, Any], keys: tuple[str, ...], dt: float) -> dict[str, Any]:
    """Advance by `dt` seconds and return the pose."""
    state["t"] += dt
    state["since"] += dt
    action, speed, turn, busy = _requested(state, frozenset(keys))
    _ease_weights(
        state["weights"], _targets(action, moving=abs(state["speed"]) > 0.25 and abs(speed) > 0), dt
    )
    _jump(state, action, dt)
    settled = 1.0 - min(1.0, 1.6 * state["weights"].get("sit", 0.0))
    _move(state, speed * settled * settled, turn * settled, dt)
    pose = gait.BodyPose(state["x"], state["z"], state["yaw"], state["speed"], state["turn"])
    current_gait = gait.gait(state["speed"], 2.6 if "march" in action.acts else 1.0)
    moving = abs(state["speed"]) > 0.08 or abs(state["turn"]) > 0.25 or busy
    if state["jump"] < 0 or state["jump"] < _CROUCH:
        gait.advance(state["feet"], pose, current_gait, dt, busy=moving and state["jump"] < 0)
    return _pose(state, current_gait, dt)


# -- requested motion ------------------------------------------------------------------------------


def _requested(state: dict[str, Any], keys: frozenset[str]) -> tuple[CurrentAction, float, float, bool]:
    """Return the actions, the speed, the turn, and whether the feet step on the spot."""
    if keys & frozenset("wasd"):
        return _by_keys(keys)
    action = _part(state)
    acts = [BY_NAME[name] for name in action.acts]
    speed = next((act.speed for act in acts if act.speed), 0.0) * action.pace
    if state["waypoints"]:
        return _by_waypoints(state, action, speed)
    turn = action.turn * max(abs(speed), 0.8)
    goal = next((act.turn for act in acts if act.turn), 0.0)
    if goal and (any(act.name == "spin" for act in acts) or abs(state["turned"]) < abs(goal)):
        turn += math.copysign(min(2.0, abs(goal) * 1.3), goal)
        # Slow down before the end of the turn.
        if not any(act.name == "spin" for act in acts):
            remaining = abs(goal) - abs(state["turned"])
            turn = math.copysign(min(abs(turn), math.sqrt(2 * _TURN_PUSH * 0.35 * max(remaining, 0.0))), goal)
    return action, speed, turn, any(act.steps for act in acts) and "dance" in action.acts


def _by_keys(keys: frozenset[str]) -> tuple[CurrentAction, float, float, bool]:
    turn = _KEY_TURN * (("a" in keys) - ("d" in keys))
    if "w" in keys:
        run = "shift" in keys
        return (
            CurrentAction(("run",) if run else ("walk",)),
            BY_NAME["run" if run else "walk"].speed,
            turn * 0.6,
            False,
        )
    if "s" in keys:
        return CurrentAction(("back",)), BY_NAME["back"].speed, turn * 0.6, False
    return CurrentAction(("stand",)), 0.0, turn, False


def _by_waypoints(
    state: dict[str, Any], action: CurrentAction, speed: float
) -> tuple[CurrentAction, float, float, bool]:
    x, z = state["waypoints"][0]
    dx, dz = x - state["x"], z - state["z"]
    distance = math.hypot(dx, dz)
    if distance < _ARRIVAL_DISTANCE:
        state["waypoints"].pop(0)
        if not state["waypoints"]:
            state["part"], state["since"], state["prompt"] = 0, 0.0, "stand"
        return action, speed, 0.0, False
    angle = (math.atan2(dx, dz) - state["yaw"] + math.pi) % (2 * math.pi) - math.pi
    cruise = speed if speed > 0 else BY_NAME["walk"].speed
    last = len(state["waypoints"]) == 1
    slow = min(1.0, 0.25 + distance / 1.2) if last else 1.0
    speed = cruise * slow * max(0.0, math.cos(min(abs(angle), math.pi / 2)))
    gaits = tuple(name for name in action.acts if BY_NAME[name].speed > 0 or name in UPPER)
    moving = gaits if any(BY_NAME[name].speed for name in gaits) else ("walk", *gaits)
    return CurrentAction(moving), speed, max(-_TURN_RATE, min(_TURN_RATE, 3.0 * angle)), False


def _part(state: dict[str, Any]) -> CurrentAction:
    """Return the current part of the prompt; the last part never ends."""
    parts = actions.parse(state["prompt"])
    while state["part"] < len(parts) - 1 and state["since"] >= parts[state["part"]].seconds:
        state["since"] -= parts[state["part"]].seconds
        state["part"] += 1
        state["turned"] = 0.0
    return parts[min(state["part"], len(parts) - 1)]


# -- smooth motion ---------------------------------------------------------------------------------


def _targets(action: CurrentAction, *, moving: bool) -> dict[str, float]:
    targets = dict.fromkeys(action.acts, 1.0)
    if all(name in UPPER for name in action.acts):
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


def _jump(state: dict[str, Any], action: CurrentAction, dt: float) -> None:
    """Advance the time of a jump (crouch, flight, landing), which is -1 on the ground."""
    duration = _CROUCH + _FLIGHT + _LAND
    if state["jump"] >= 0:
        before = state["jump"]
        state["jump"] += dt
        if before < _CROUCH + _FLIGHT <= state["jump"]:
            gait.land(state["feet"], gait.BodyPose(state["x"], state["z"], state["yaw"], state["speed"], 0.0))
        if state["jump"] >= duration:
            state["jump"] = -1.0
    elif "jump" in action.acts and state["weights"].get("jump", 0.0) > 0.6:
        state["jump"] = 0.0


def _height(jump: float) -> tuple[float, float, float]:
    """Return the height of a jump in meters, the bend of the knees and the height of the arms (0 to 1)."""
    if jump < 0:
        return 0.0, 0.0, 0.0
    t = jump - _CROUCH
    rise = math.sqrt(2 * _JUMP_HEIGHT * _GRAVITY) * t - _GRAVITY * t * t / 2 if 0 < t < _FLIGHT else 0.0
    return max(0.0, rise), _at(jump, _BENDS), _at(jump, _ARMS)


def _at(jump: float, values: tuple[float, ...]) -> float:
    """Interpolate values linearly between the times of a jump."""
    following = min(bisect.bisect_right(_JUMP_TIMES, jump), len(_JUMP_TIMES) - 1)
    before, after = _JUMP_TIMES[following - 1], _JUMP_TIMES[following]
    share = min(1.0, (jump - before) / (after - before))
    return values[following - 1] + (values[following] - values[following - 1]) * share


# -- the pose --------------------------------------------------------------------------------------


def _blend(state: dict[str, Any]) -> Angles:
    moment = ActionMoment(state["t"], state["feet"]["phase"], state["speed"])
    weights: dict[str, float] = state["weights"]
    base = {name: weight for name, weight in weights.items() if name not in UPPER}
    total = sum(base.values())
    if total <= 1e-6:
        base, total = {"stand": 1.0}, 1.0
    pose = body.blend(*((POSES[name](moment), weight / total) for name, weight in base.items()))
    upper = {name: weight for name, weight in weights.items() if name in UPPER}
    total = sum(upper.values())
    if total > 0:
        cover = min(1.0, total)
        over = body.blend(*((POSES[name](moment), weight / total) for name, weight in upper.items()))
        for name in _UPPER_ANGLES:
            pose[name] += (over[name] - pose[name]) * cover
    return pose


def _pose(state: dict[str, Any], current_gait: gait.Gait, dt: float) -> dict[str, Any]:
    angles = _blend(state)
    air, bend, arms = _height(state["jump"])
    for name, amount in (("left_raise", 1.7 * arms), ("right_raise", 1.7 * arms), ("pitch", 0.35 * bend)):
        angles[name] += amount
    left, _, forward = body.rotated_axes(state["yaw"])
    height = body.HIP_HEIGHT + air - angles["down"] - 0.26 * bend
    pelvis = along((state["x"], height, state["z"]), left, angles["aside"])
    pelvis = along(pelvis, forward, -angles["back"] - 0.08 * bend)
    if air > 0:
        gait.gather(state["feet"], gait.BodyPose(state["x"], state["z"], state["yaw"], state["speed"], 0.0))
    feet = gait.ankles(state["feet"], current_gait, air)
    pelvis = _lower(state, pelvis, gait.ceiling(body.hips(pelvis, state["yaw"], angles), feet), dt, air)
    joints = body.torso(pelvis, state["yaw"], angles)
    for side, hip in body.hips(pelvis, state["yaw"], angles).items():
        foot = feet[side]
        knee, ankle = body.knee(hip, foot["ankle"], along(foot["forward"], forward, 1.0))
        joints |= {f"{side}_hip": hip, f"{side}_knee": knee, f"{side}_ankle": ankle,
                   f"{side}_toe": along(foot["toe"], body.difference(foot["ankle"], ankle), 1.0)}  # fmt: skip
    return {
        "root": {"position": _rounded(pelvis), "yaw": round(state["yaw"], 4)},
        "joints": {name: _rounded(joints[name]) for name in body.JOINTS},
        "contacts": {side: feet[side]["planted"] for side in body.SIDES},
    }


def _lower(state: dict[str, Any], pelvis: Vector, excess: float, dt: float, air: float) -> Vector:
    """Lower the pelvis by `excess` at once until all planted feet are in reach, and raise it smoothly."""
    eased = state["sink"] + (excess - state["sink"]) * (1 - math.exp(-dt / 0.09))
    state["sink"] = max(excess, eased) if air <= 0 else 0.0
    return pelvis[0], pelvis[1] - state["sink"], pelvis[2]


def _rounded(point: Vector) -> list[float]:
    x, y, z = point
    return [round(x, 4), round(y, 4), round(z, 4)]
