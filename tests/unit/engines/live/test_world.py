"""Explorable worlds: effects of prompts, obstacles, and determinism."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Task
from sixfold.core.sessions.engine import Controls, EngineStep, StepResult
from sixfold.engines.live.world import navigation, prompt_parser, terrain
from sixfold.engines.live.world.engine import HEIGHT, WIDTH, WorldEngine
from tests.unit.engines.video.videos import Recorder

# The engine caches the worlds that were built last.
ENGINE = WorldEngine()


def look(prompt: str, state: Any = None, **more: Any) -> tuple[StepResult, np.ndarray[Any, Any]]:
    """Return a frame of a session as RGB from 0 to 255."""
    controls = Controls(more.pop("keys", ()), more.pop("new", None))
    response = ENGINE.step(EngineStep("world-model", {"prompt": prompt}, state, controls, 30, **more))
    assert response.frame is not None
    assert (response.frame.format, response.frame.width, response.frame.height) == ("jpeg", WIDTH, HEIGHT)
    pixels = cv2.imdecode(np.frombuffer(response.frame.data, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return response, pixels[..., ::-1].astype(np.float32)


@pytest.mark.nightly
def test_time_terrain_and_weather_change_the_image() -> None:
    images = {
        prompt: look(prompt)[1]
        for prompt in (
            "a meadow at noon",
            "a meadow at night",
            "a meadow in fog",
            "desert dunes",
            "arctic winter",
        )
    }
    day, night, fog = (images[f"a meadow {when}"] for when in ("at noon", "at night", "in fog"))
    assert night.mean() < day.mean() * 0.5
    assert fog[:100].std() < day[:100].std() + 8
    sky, ground = day[5:40], day[-60:]
    assert sky[..., 2].mean() > sky[..., 0].mean() + 15
    assert ground[..., 1].mean() > ground[..., 2].mean() + 10
    sand, snow = images["desert dunes"][-60:], images["arctic winter"][-60:]
    assert sand[..., 0].mean() > sand[..., 2].mean() + 25
    assert np.ptp(snow.mean((0, 1))) < 40
    for image in images.values():
        assert image.std() > 14


def test_walking_and_turning_change_the_view() -> None:
    response, first = look("rolling hills")
    still, same = look("rolling hills", response.state)
    ahead, moved = look("rolling hills", response.state, keys=("w",), ticks=30)
    turned, aside = look("rolling hills", response.state, keys=("a",), ticks=20)
    assert np.abs(same - first).mean() < 4 < np.abs(moved - first).mean() < np.abs(aside - first).mean()
    distance = math.hypot(ahead.state["x"] - response.state["x"], ahead.state["z"] - response.state["z"])
    assert 1.0 < distance < 4.0
    assert turned.state["yaw"] != still.state["yaw"] == response.state["yaw"]


@pytest.mark.nightly
def test_same_state_gives_same_frame_on_another_engine() -> None:
    response, first = look("islands at sunset")
    second_result, second = look("islands at sunset")
    assert np.array_equal(first, second)
    assert response == second_result
    other = WorldEngine().step(EngineStep("w", {"prompt": "islands at sunset"}, None, Controls(), 30))
    assert other.frame == response.frame


def test_new_prompt_changes_terrain_and_unseen_step_is_undrawn() -> None:
    response, before = look("forest")
    changed_result, after = look("forest", response.state, new="forest at night")
    assert changed_result.state["prompt"] == "forest at night"
    assert after.mean() < before.mean()
    unseen = ENGINE.step(EngineStep("w", {}, changed_result.state, Controls(("w",)), 30, ticks=5, draw=False))
    assert unseen.frame is None
    assert unseen.state["t"] == pytest.approx(changed_result.state["t"] + 5 / 30)


@pytest.mark.parametrize("prompt", ["islands", "forest"])
def test_water_and_trees_block_movement(prompt: str) -> None:
    ground = terrain.build(prompt_parser.parse(prompt))
    assert len(ground.trees) > 50
    rng = np.random.default_rng(5)
    state = navigation.begin(ground, prompt)
    met = 0
    for _ in range(120):
        state["yaw"] = float(rng.uniform(0, 2 * np.pi))
        before = state["x"], state["z"]
        navigation.advance(state, ground, ("w",), 2.0)
        met += math.dist(before, (state["x"], state["z"])) < 4.0
        height = float(ground.height[int(state["z"]) % terrain.SIZE, int(state["x"]) % terrain.SIZE])
        assert height > ground.water - 1.5
        away = np.hypot(ground.trees[:, 0] - state["x"], ground.trees[:, 1] - state["z"])
        assert away.min() > 0.7
    assert met > 3


def test_cliff_blocks_movement_upwards_only() -> None:
    level = terrain.build(prompt_parser.parse("meadow"))
    height = np.full((terrain.SIZE, terrain.SIZE), 10.0, np.float32)
    height[:, 500:510] += np.arange(10, dtype=np.float32)  # 45 degrees up along x
    height[:, 510:] += 10
    cliff = msgspec.structs.replace(level, height=height, water=0.0, trees=np.zeros((0, 5), np.float32))
    state = {**navigation.begin(level, "meadow"), "x": 495.0, "z": 5.0, "yaw": math.pi / 2}
    navigation.advance(state, cliff, ("w",), 6.0)
    assert 498.0 < state["x"] < 503.0
    state |= {"x": 515.0, "yaw": -math.pi / 2}
    navigation.advance(state, cliff, ("w",), 6.0)
    assert state["x"] < 499.0
    assert state["eye"] == pytest.approx(11.72, abs=0.1)


def test_the_land_repeats_without_a_seam() -> None:
    ground = terrain.build(prompt_parser.parse("mountains"))
    seam = np.abs(ground.height[:, 0] - ground.height[:, -1])
    usual = np.abs(np.diff(ground.height, axis=1))
    assert seam.max() <= usual.max() * 1.05


def test_single_run_gives_one_image_that_keys_and_steps_change() -> None:
    def ran(**inputs: Any) -> Any:
        task = Task("t", "world-model", {"prompt": "a lake in the mountains", "steps": 1, **inputs})
        (artifact,) = ENGINE.run(task, Recorder(Path())).artifacts
        assert (artifact.content_type, dict(artifact.info)) == ("image/webp", {"width": 960, "height": 540})
        return artifact.data

    first = ran()
    assert Image.open(io.BytesIO(first)).size == (960, 540)
    assert ran() == first
    assert ran(keys="w", steps=8) != ran(keys="a", steps=8) != first


@pytest.mark.parametrize(
    ("prompt", "ignored"),
    [
        ("snowy mountains by a lake, clear morning", ()),
        ("an autumn forest in the mountains, a lake", ()),
        ("snow on the beach", ()),
        ("hills by the sea", ()),
        ("an island with palm trees", ()),
        ("a desert with a forest and a river", ("forest", "river")),
        ("a canyon in the mountains by a lake", ("mountains",)),
    ],
)
def test_a_prompt_combines_a_land_with_covers_and_water(prompt: str, ignored: tuple[str, ...]) -> None:
    assert prompt_parser.parse(prompt).words.ignored == ignored


def test_snowy_mountains_by_a_lake_have_all_three() -> None:
    plain, snowy = (
        terrain.build(prompt_parser.parse(prompt))
        for prompt in ("mountains at noon", "snowy mountains by a lake at noon")
    )
    assert np.ptp(snowy.height) > 0.9 * np.ptp(plain.height)
    high_and_dry = snowy.height > snowy.water + 2
    assert snowy.color[high_and_dry].mean() > plain.color[plain.height > plain.water + 2].mean() * 1.2
    assert (snowy.height < snowy.water).mean() > 0.25
    state = navigation.begin(snowy, "snowy mountains by a lake at noon")
    # The lake is in front of the walker.
    far = np.arange(10, 120, 4)
    rows = (state["z"] + np.cos(state["yaw"]) * far).astype(int) % terrain.SIZE
    columns = (state["x"] + np.sin(state["yaw"]) * far).astype(int) % terrain.SIZE
    assert (snowy.height[rows, columns] < snowy.water).mean() > 0.2


def test_prompt_selects_terrain_time_and_weather() -> None:
    world = prompt_parser.parse("A snowy forest at midnight, heavy snowfall")
    assert world.land["tree"] == "snowy"
    assert world.hour["stars"] == 1.0
    assert world.weather["falling"] == "snow"
    assert prompt_parser.parse("nothing that is known").land["tree"] == "broadleaf"
