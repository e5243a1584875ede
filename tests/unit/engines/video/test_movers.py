"""Vehicles and animals of a painted scene move, keep their distances and stay in the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from msgspec.structs import replace

from sixfold.core.catalog.engines import Task
from sixfold.engines.image.scene import prompt_parser, shapes
from sixfold.engines.image.scene.finishing import RenderQuality
from sixfold.engines.video import camera_moves, layers, parallax, source_image, yuv
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.engine import CameraEngine
from sixfold.engines.video.motion import movers
from tests.unit.engines.video import videos

SIZE = (320, 180)
GAIT = layers.MoverGait(pace=0.1, bob=0.0, beat=1.0)
GAITS = movers.gaits()


def names_of(prompt: str) -> set[str]:
    return set(movers.gaits_of(prompt_parser.parse(prompt)))


@pytest.mark.parametrize(
    ("prompt", "names"),
    [
        ("a red car driving along a road", {"car"}),
        ("a sailboat on a lake", {"sailboat"}),
        ("a knight riding a horse", {"knight", "horse"}),
        ("a cat in a basket", set[str]()),
        ("a parked car in a street", set[str]()),
        ("an old house by a lake", set[str]()),
        ("a dog sitting on a sofa", set[str]()),
        ("an icon of a car", set[str]()),
        ("a bird perched on a wire", set[str]()),
        ("a ship docked in a harbour", set[str]()),
    ],
)
def test_vehicles_and_animals_move_unless_they_are_stopped(prompt: str, names: set[str]) -> None:
    assert names_of(prompt) == names


@pytest.mark.parametrize(
    ("moving", "stopped"),
    [
        ("a car in a street", "a parked car in a street"),
        ("ein Hund läuft über eine Wiese", "ein schlafender Hund auf einer Wiese"),
        ("un barco navega en el mar", "un barco amarrado en el puerto"),
        ("un chien court dans la forêt", "un chien assis dans la forêt"),
        ("собака бежит в лес", "собака спит, лес"),
        ("森の中を走る犬", "森で眠っている犬"),
        ("一只狗在草地上奔跑", "一只狗睡在草地上"),
    ],
)
def test_words_of_each_language_stop_subjects(moving: str, stopped: str) -> None:
    assert names_of(moving)
    assert names_of(stopped) == set()


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        ("ein Hund läuft langsam", "ein Hund läuft schnell"),
        ("un perro corre despacio", "un perro corre a toda velocidad"),
        ("un chien marche lentement", "un chien marche vite"),
        ("собака идёт медленно", "собака бежит быстро"),
        ("ゆっくり歩く犬", "疾走する犬"),
        ("狗缓慢地走", "狗飞快地跑"),
    ],
)
def test_words_for_speed_are_read_in_each_language(slow: str, fast: str) -> None:
    paces = [movers.gaits_of(prompt_parser.parse(prompt))["dog"].pace for prompt in (slow, fast)]
    assert paces[0] < GAITS["dog"].pace < paces[1]


@pytest.mark.parametrize(
    "camera", ["Kamera steht still", "cámara quieta", "caméra immobile", "镜头静止", "カメラ固定"]
)
def test_a_still_camera_leaves_subjects_moving_in_any_language(camera: str) -> None:
    assert names_of(f"{camera}, a dog") == {"dog"}


def test_subjects_on_the_ground_do_not_sink_and_boats_bob_gently() -> None:
    heights = {name: [movers.rise(gait, step / 25) for step in range(100)] for name, gait in GAITS.items()}
    assert min(min(heights[name]) for name in ("rabbit", "squirrel", "dog", "car", "train")) >= 0
    assert max(heights["rabbit"]) > 0.1
    assert max(map(abs, heights["sailboat"])) <= 0.01


def test_every_gait_belongs_to_a_drawing_and_is_slow() -> None:
    scene = prompt_parser.parse("a car")
    drawings = tuple(prompt_parser.SceneSubject(name) for name in shapes.library())
    gaits = movers.gaits_of(replace(scene, subjects=drawings))
    assert len(gaits) >= 35
    assert all(0 < gait.pace < 0.3 for gait in gaits.values())


def test_words_for_speed_change_the_pace() -> None:
    paces = [
        movers.gaits_of(prompt_parser.parse(f"a car driving {word} in a desert"))["car"].pace
        for word in ("slowly", "along", "fast")
    ]
    assert paces == sorted(set(paces))


@pytest.mark.parametrize(
    "camera",
    ["camera zooms in fast", "the camera slowly pans left", "the camera stands still", "slow zoom out"],
)
def test_words_about_the_camera_do_not_change_the_pace(camera: str) -> None:
    plan = camera_moves.parse(f"{camera} over a car on a road")
    assert movers.gaits_of(prompt_parser.parse(plan.rest)) == movers.gaits_of(prompt_parser.parse("a car"))


def test_every_word_for_speed_is_understood() -> None:
    moving = movers.MoverAnimation((square(160),), SIZE, 4.0)
    for word in ("quickly", "rushes", "speeding", "slowly", "strolls", "crawling", "drifting"):
        assert word in moving.words(f"a car {word} along a road").understood


def test_rider_moves_as_the_animal_below_it_at_each_depth() -> None:
    scene = prompt_parser.parse("a knight riding an elephant in a city")
    still = source_image.paint(scene, 3, SIZE, lambda _: None, RenderQuality())
    knight, elephant = still.sprites
    assert (knight.name, elephant.name) == ("knight", "elephant")
    motion = [(each.nearness, each.height, each.center, each.gait) for each in still.sprites]
    assert motion[0] == motion[1]


def square(center: float, *, mirrored: bool = False) -> layers.MovingSprite:
    """A white square of 20 pixels with its middle at a column, at half height."""
    return layers.MovingSprite(
        name="car",
        rgb=np.full((20, 20, 3), 255, np.uint8),
        matte=np.full((20, 20), 255, np.uint8),
        left=round(center) - 10,
        top=SIZE[1] // 2 - 10,
        center=center,
        height=20.0,
        is_mirrored=mirrored,
        nearness=0.5,
        gait=GAIT,
    )


def positions(
    sprites: tuple[layers.MovingSprite, ...], second: float, pose: CameraPose
) -> list[tuple[int, int]]:
    """Return the middle of each white region in a frame on black, from left to right."""
    flat = layers.SourceStill(np.zeros((SIZE[1], SIZE[0], 3), np.uint8), np.full((45, 80), 0.5, np.float32))
    stage = parallax.ParallaxStage(layers.separate(flat, parallax.grid(SIZE)), SIZE, 1.0)
    moving = movers.MoverAnimation(sprites, SIZE, 4.0)
    frame: Any = yuv.to_rgb(moving.draw(stage.frame(pose), stage, pose, second))
    count, _, _, centers = cv2.connectedComponentsWithStats((frame[..., 1] > 128).astype(np.uint8))
    return sorted((round(x), round(y)) for x, y in centers[1:count].tolist())


def test_sprite_moves_forward_through_its_painted_place() -> None:
    found = [positions((square(160),), second, CameraPose())[0][0] for second in (0.0, 2.0, 4.0)]
    assert found == pytest.approx([96, 160, 224], abs=1)
    back = [positions((square(160, mirrored=True),), second, CameraPose())[0][0] for second in (0.0, 4.0)]
    assert back == pytest.approx([224, 96], abs=1)


def test_sprites_keep_their_distance_and_stay_in_the_image() -> None:
    for second in (0.0, 1.0, 4.0):
        first, last = positions((square(120), square(250)), second, CameraPose())
        assert last[0] - first[0] == pytest.approx(130, abs=1)
        assert first[0] > 20
        assert last[0] < SIZE[0] - 20


def test_sprite_follows_the_camera() -> None:
    (zoomed,) = positions((square(200),), 2.0, CameraPose(zoom=1.5))
    assert zoomed == pytest.approx((160 + 1.5 * 40, 90), abs=1)
    (panned,) = positions((square(160),), 2.0, CameraPose(pan_x=0.1))
    assert panned == pytest.approx((192, 90), abs=1)


def test_car_crosses_the_video_and_words_are_understood(tmp_path: Path) -> None:
    inputs = {"prompt": "a red car driving through a desert, static camera", "seed": 3, "resolution": "480p"}
    task = Task("t", "video-text", {**inputs, "num_frames": 17, "frames_per_second": 4})
    result = CameraEngine().run(task, videos.Recorder(tmp_path))
    path = result.artifacts[0].path
    assert path is not None
    frames = videos.decode(path).frames

    def column_of_red(frame: Any) -> float:
        red = frame[..., 0].astype(int) - frame[..., 1:].max(-1)
        return float(np.median(np.nonzero(red > 90)[1])) / frame.shape[1]

    assert column_of_red(frames[-1]) - column_of_red(frames[0]) > 0.25
    assert "car" in result.data["moving"]
    assert {"red", "car", "driving", "desert"} <= set(result.words.understood)
