"""Parsing of camera moves, and the sizes of videos."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sixfold.engines.video import camera_moves, dimensions, parallax

PROMPTS: list[tuple[str, list[list[str]]]] = [
    ("the camera pans slowly to the left", [["pan +0.6"]]),
    ("fast pan right across the bay", [["pan -1.6"]]),
    ("tilt up to the sky", [["tilt +1"]]),
    ("zoom out", [["zoom -1"]]),
    ("zoom", [["zoom +1"]]),
    ("a slow push-in on her face", [["dolly +0.6"]]),
    ("pull back to reveal the valley", [["dolly -1"]]),
    ("dolly out", [["dolly -1"]]),
    ("orbit right around the statue", [["orbit -1"]]),
    ("crane shot rising over the roofs", [["crane +1"]]),
    ("drone shot over the coast", [["flight +1"]]),
    ("handheld camera, documentary style", [["handheld +1"]]),
    ("shaky footage", [["shake +1"]]),
    ("slow pan left, then quickly zoom in", [["pan +0.6"], ["zoom +1.6"]]),
    ("pan right while zooming out", [["pan -1", "zoom -1"]]),
    ("the camera moves forward through the trees", [["travel +1"]]),
    ("static camera", [[]]),
    ("locked-off shot, then zoom in", [[], ["zoom +1"]]),
]


@pytest.mark.parametrize(("prompt", "plan"), PROMPTS)
def test_camera_moves_are_parsed_from_the_prompt(prompt: str, plan: list[list[str]]) -> None:
    assert camera_moves.parse(prompt).description == plan


@pytest.mark.parametrize(
    "prompt",
    [
        "a man walks to the left",
        "an egg in a frying pan",
        "the truck drives away",
        "waves roll onto the shore",
        "a bird flies over the lake",
        "",
    ],
)
def test_movement_of_objects_is_not_a_camera_move(prompt: str) -> None:
    assert not camera_moves.parse(prompt).specified


def test_crane_shot_is_removed_from_the_scene_prompt() -> None:
    rest = camera_moves.parse("a village, crane shot up, then trucking shot left").rest
    assert "village" in rest
    assert "crane" not in rest
    assert "truck" not in rest


def test_negative_prompt_removes_a_camera_move() -> None:
    assert camera_moves.parse("slow pan left and zoom in", "zoom").description == [["pan +0.6"]]


def test_static_camera_does_not_move() -> None:
    path = camera_moves.MovePath(camera_moves.parse("static camera"), 5.0, 3)
    assert path.at(0.0) == path.at(0.7) == camera_moves.CameraPose()


def test_camera_path_is_smooth() -> None:
    path = camera_moves.MovePath(camera_moves.parse("pan left, then tilt up, then orbit right"), 5.0, 1)
    poses = [path.at(step / 400) for step in range(401)]
    steps = [
        max(abs(b.pan_x - a.pan_x), abs(b.pan_y - a.pan_y), abs(b.shift_x - a.shift_x))
        for a, b in pairwise(poses)
    ]
    assert max(steps) < 0.002
    assert steps[0] < 0.0002 > steps[-1]


def test_longer_video_has_a_longer_bounded_move() -> None:
    def reach(seconds: float) -> float:
        path = camera_moves.MovePath(camera_moves.parse("pan left"), seconds, 1)
        return path.at(1.0).pan_x - path.at(0.0).pan_x

    assert reach(2) < reach(5) < reach(20) < 0.3


@pytest.mark.parametrize(
    "prompt", ["pan left", "orbit right", "dolly out", "roll the camera left", "crane shot up"]
)
def test_margin_keeps_every_pose_inside_the_image(prompt: str) -> None:
    path = camera_moves.MovePath(camera_moves.parse(prompt), 5.0, 1)
    poses = [path.at(step / 48) for step in range(49)]
    margin = parallax.margin(poses, (320, 180))
    assert 1.0 < margin < 1.5
    pulled = [pose for pose in poses if pose.zoom * margin < 1.0]
    assert not pulled or prompt == "dolly out"


@pytest.mark.parametrize(
    ("resolution", "shape", "size"),
    [
        ("720p", 16 / 9, (1280, 720)),
        ("480p", 16 / 9, (854, 480)),
        ("580p", 1.0, (580, 580)),
        ("720p", 9 / 16, (720, 1280)),
        ("1080p", 16 / 9, (1920, 1080)),
    ],
)
def test_short_side_has_the_requested_resolution(
    resolution: str, shape: float, size: tuple[int, int]
) -> None:
    assert dimensions.frame(resolution, shape) == size


def test_sides_are_even_and_keep_the_aspect_ratio() -> None:
    for resolution, expected in dimensions.SHORT_SIDES.items():
        for width in range(300, 900, 7):
            shape = dimensions.aspect_ratio("auto", (width, 512))
            size = dimensions.frame(resolution, shape)
            assert size[0] % 2 == size[1] % 2 == 0
            assert abs(min(size) - expected) <= 16
            assert abs(size[0] / size[1] / shape - 1) < 0.002


def test_a_panorama_is_cut_to_three_to_one() -> None:
    assert dimensions.aspect_ratio("auto", (9000, 500)) == 3.0
    assert dimensions.aspect_ratio("1:1", (9000, 500)) == 1.0
    assert dimensions.aspect_ratio("auto", None) == pytest.approx(16 / 9)
