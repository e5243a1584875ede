"""Body motion: planted feet do not slide, motion is smooth, and prompts are followed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from sixfold.core.catalog.engines import Task
from sixfold.core.sessions.engine import Controls, EngineStep
from sixfold.engines.live.motion import actions, body
from sixfold.engines.live.motion.engine import MotionEngine
from tests.unit.engines.video.videos import Recorder

FPS = 20
Pose = dict[str, Any]


def session_poses(*parts: tuple[int, Controls], prompt: str = "") -> list[Pose]:
    """Return the poses of a session with ticks under each of several controls."""
    engine, state, poses = MotionEngine(), None, []
    for ticks, controls in parts:
        for tick in range(ticks):
            now = controls if tick == 0 else Controls(controls.keys)
            response = engine.step(EngineStep("motion-model", {"prompt": prompt}, state, now, FPS))
            # The state is serialized between processes.
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(dict(response.state)))
            poses += response.poses
    return poses


def single_run(prompt: str, steps: int = 80) -> list[Pose]:
    task = Task("t", "motion-model", {"prompt": prompt, "steps": steps})
    return MotionEngine().run(task, Recorder(Path())).data["value"]


def slides(poses: Sequence[Pose]) -> dict[str, float]:
    """Return the largest displacement of a planted foot in meters."""
    worst = dict.fromkeys(body.SIDES, 0.0)
    for side in body.SIDES:
        for stands, group in itertools.groupby(poses, key=lambda pose, side=side: pose["contacts"][side]):
            if stands:
                toes = np.array([pose["joints"][f"{side}_toe"] for pose in group])
                worst[side] = max(worst[side], float(np.linalg.norm(toes - toes[0], axis=1).max()))
    return worst


def fastest(poses: Sequence[Pose]) -> float:
    """Return the highest speed of any joint in m/s."""
    joints = np.array([[pose["joints"][name] for name in body.JOINTS] for pose in poses])
    return float(np.linalg.norm(np.diff(joints, axis=0), axis=2).max()) * FPS


def distance(poses: Sequence[Pose]) -> float:
    """Return the distance that the body moved in meters."""
    first, last = (np.array(pose["root"]["position"]) for pose in (poses[0], poses[-1]))
    return float(np.linalg.norm((last - first)[[0, 2]]))


BONES = (
    ("pelvis", "spine"), ("spine", "chest"), ("chest", "neck"), ("neck", "head"),
    *((f"{side}_{a}", f"{side}_{b}") for side in body.SIDES for a, b in
      (("shoulder", "elbow"), ("elbow", "wrist"), ("wrist", "hand"), ("hip", "knee"), ("knee", "ankle"),
       ("ankle", "toe"))),
    *(bone for side in body.SIDES for bone in (("chest", f"{side}_shoulder"), ("pelvis", f"{side}_hip"))),
)  # fmt: skip
PROMPTS = [
    "walk forward", "run", "walk slowly backwards", "sneak", "march", "walk in a circle and wave", "dance",
    "turn around then run", "spin", "sit down", "bow", "walk, then sit, then walk",
]  # fmt: skip


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_standing_foot_slides_less_than_two_centimetres(prompt: str) -> None:
    poses = single_run(prompt, 120)
    assert max(slides(poses).values()) <= 0.02
    assert all(any(pose["contacts"].values()) for pose in poses) or "run" in prompt


@pytest.mark.parametrize("prompt", [*PROMPTS, "jump", "cheer", "clap then think"])
def test_motion_is_smooth_and_bones_keep_their_length(prompt: str) -> None:
    poses = single_run(prompt)
    assert fastest(poses) < 10.5
    for first, second in BONES:
        lengths = [math.dist(pose["joints"][first], pose["joints"][second]) for pose in poses]
        assert max(lengths) - min(lengths) < (0.05 if "toe" in second else 0.004), (first, second)
    assert min(pose["joints"][name][1] for pose in poses for name in body.JOINTS) > -0.01


def test_new_prompt_is_reached_by_blending() -> None:
    parts = [
        (30, Controls(prompt=prompt)) for prompt in ("walk", "run", "wave", "sit", "dance", "walk", "stop")
    ]
    poses = session_poses(*parts)
    assert fastest(poses) < 10.5
    assert max(slides(poses).values()) <= 0.02
    seams = range(30, len(poses), 30)
    for name in body.JOINTS:
        track = np.array([pose["joints"][name] for pose in poses])
        jumps = np.linalg.norm(np.diff(track, axis=0), axis=1)
        assert max(jumps[seam - 1] for seam in seams) < 0.30, name


def test_body_moves_as_the_prompt_requests() -> None:
    assert distance(single_run("walk", 60)) == pytest.approx(3.5, abs=0.6)
    assert distance(single_run("run", 60)) > 6.5
    assert distance(single_run("stand", 60)) < 0.1
    assert single_run("walk backwards", 60)[-1]["root"]["position"][2] < -1.5
    assert single_run("turn left", 60)[-1]["root"]["yaw"] == pytest.approx(math.pi / 2, abs=0.15)
    assert single_run("turn around", 80)[-1]["root"]["yaw"] == pytest.approx(math.pi, abs=0.2)
    poses = session_poses((160, Controls(waypoints=((0.0, 3.0), (2.0, 3.0)))))
    x, _, z = poses[-1]["root"]["position"]
    assert math.hypot(x - 2.0, z - 3.0) < 0.5
    # The figure stays at the last waypoint.
    assert distance(poses[-20:]) < 0.15
    assert max(slides(poses).values()) <= 0.02


def test_keys_override_the_prompt() -> None:
    poses = session_poses((40, Controls(("w",))), (40, Controls()), (40, Controls(("a",))), prompt="stand")
    assert poses[39]["root"]["position"][2] > 1.6
    assert distance(poses[55:80]) < 0.1
    assert poses[-1]["root"]["yaw"] > 1.5
    assert session_poses((40, Controls(("s",))))[-1]["root"]["position"][2] < -0.8


def test_actions_are_visible_in_the_joints() -> None:
    wave, sit, jump = single_run("wave"), single_run("sit down"), single_run("jump")
    shoulder = wave[40]["joints"]["right_shoulder"][1]
    assert wave[40]["joints"]["right_hand"][1] > shoulder + 0.1
    assert sit[-1]["joints"]["pelvis"][1] < 0.6
    assert max(pose["joints"]["left_toe"][1] for pose in jump) > 0.25
    assert max(pose["joints"]["head"][1] for pose in jump) > 1.9
    apart = [
        math.dist(pose["joints"]["left_hand"], pose["joints"]["right_hand"]) for pose in single_run("clap")
    ]
    assert min(apart[20:]) < 0.22


def test_same_controls_give_same_poses_in_one_or_many_steps() -> None:
    engine = MotionEngine()
    full_result = engine.step(EngineStep("m", {"prompt": "walk"}, None, Controls(), FPS, ticks=25))
    assert list(full_result.poses) == session_poses((25, Controls()), prompt="walk")
    assert list(full_result.poses) == [
        {k: v for k, v in pose.items() if k != "t"} for pose in single_run("walk", 25)
    ]
    assert len(msgspec.msgpack.encode(dict(full_result.state))) < 2000


def test_prompt_is_parsed_to_a_sequence_of_actions() -> None:
    row = actions.parse("She walks quickly in a circle, then waves; finally sits down")
    assert [doing.acts for doing in row] == [("walk",), ("wave",), ("sit",)]
    assert row[0].pace == pytest.approx(1.35)
    assert row[0].turn > 0
    assert actions.parse("a quiet afternoon")[0].acts == ("stand",)
    assert actions.parse("walk and wave")[0].acts == ("wave", "walk")
