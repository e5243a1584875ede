"""Wind moves plants, a storm has bolts of lightning, and words for what is not shown are ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Result, Task
from sixfold.engines import prompt_words
from sixfold.engines.image.scene import noise, prompt_parser
from sixfold.engines.video import layers, parallax, yuv
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.engine import CameraEngine
from sixfold.engines.video.motion import ambient, motion_words, wind
from sixfold.engines.video.motion.lightning import Lightning
from tests.unit.engines.video import videos

SIZE = (320, 180)
HORIZON = 100


def rendered(folder: Path, prompt: str, source: Path | None = None) -> Result:
    inputs = {"prompt": f"{prompt}, static camera", "seed": 3, "resolution": "480p"}
    files = {} if source is None else {"image_url": source}
    task = Task("t", "video-a", {**inputs, "num_frames": 2, "frames_per_second": 4}, files)
    return CameraEngine().run(task, videos.Recorder(folder))


def landscape() -> layers.SourceStill:
    """A dark sky over green land."""
    rgb = np.full((SIZE[1], SIZE[0], 3), 40, np.uint8)
    rgb[HORIZON:] = (60, 140, 50)
    sky = np.zeros((SIZE[1], SIZE[0]), np.float32)
    sky[:HORIZON] = 1
    return layers.SourceStill(rgb, np.full((45, 80), 0.5, np.float32), sky=sky)


def shown_storm(prompt: str, negative: str = "") -> tuple[bool, bool]:
    """Return whether a video of the prompt has wind, and whether it has lightning."""
    scene, text = prompt_parser.parse(prompt, negative), prompt_words.fold(prompt)
    wind_is_shown, lightning_is_shown = (
        ambient._is_stormy(scene, words, text, negative) for words in (motion_words.WIND, motion_words.FLASH)
    )
    return wind_is_shown, lightning_is_shown


def luma_at(second: float, pose: CameraPose) -> Any:
    still = landscape()
    stage = parallax.ParallaxStage(layers.separate(still, parallax.grid(SIZE)), SIZE, 1.0)
    flashes = Lightning((1.0,), still, 3)
    return flashes.draw(stage.frame(pose), stage, pose, second).y.astype(int)


def test_a_bolt_is_in_the_sky_only_while_it_flashes() -> None:
    before, flash, after = (luma_at(second, CameraPose()) for second in (0.9, 1.17, 3.0))
    assert (before == after).all()
    brighter = flash - before
    assert brighter[: HORIZON - 2].max() > 120
    assert np.abs(brighter[HORIZON + 2 :]).max() <= 1


def test_a_bolt_follows_the_camera() -> None:
    columns = [
        int((luma_at(1.17, pose) - luma_at(0.9, pose))[:40].max(0).argmax())
        for pose in (CameraPose(), CameraPose(pan_x=0.1))
    ]
    assert columns[1] - columns[0] == pytest.approx(32, abs=2)


def test_a_flash_brightens_the_whole_image() -> None:
    still = landscape()
    planes = yuv.of_rgb(still.rgb)
    flashes = Lightning((1.0,), still, 3)
    assert flashes.brighten(planes, 0.5) is planes
    assert (flashes.brighten(planes, 1.17).y > planes.y).all()


def test_wind_sways_green_plants_and_nothing_else() -> None:
    scene = prompt_parser.parse("a meadow in the wind")
    sway = wind.Sway.of(scene, "a meadow in the wind", landscape(), (80, 45), noise.stream(1, "test"))
    assert sway is not None
    shifts = [sway.at(second, 1.0).x for second in (0.0, 0.6)]
    assert np.abs(shifts[0] - shifts[1])[30:].mean() > 0.002
    assert np.abs(shifts[0])[:20].max() < 1e-4


def test_yellow_plants_sway_only_if_they_are_named() -> None:
    still = landscape()
    still.rgb[HORIZON:] = (170, 130, 70)
    scene = prompt_parser.parse("grass")
    for prompt, sways in (("the dry grass sways", True), ("the grass sways", False)):
        sway = wind.Sway.of(scene, prompt, still, (80, 45), noise.stream(1, "test"))
        assert (sway is not None) == sways, prompt


def test_distant_yellow_land_does_not_sway() -> None:
    still = landscape()
    still.rgb[HORIZON:] = (170, 130, 70)
    still.near[:] = 0.3
    scene = prompt_parser.parse("grass")
    sway = wind.Sway.of(scene, "the dry grass sways", still, (80, 45), noise.stream(1, "test"))
    assert sway is None


@pytest.mark.parametrize(
    ("prompt", "word", "understood"),
    [
        ("trees on a hill in the wind", "wind", True),
        ("Bäume auf einem Hügel im Wind", "wind", True),
        ("a vase on a table in the wind", "wind", False),
        ("a ship in a storm with lightning", "lightning", True),
        ("rain and lightning over a city", "lightning", True),
        ("a cat in a room, lightning", "lightning", False),
        ("embers above a campfire", "embers", True),
    ],
)
def test_a_word_for_weather_is_understood_if_it_is_shown(
    tmp_path: Path, prompt: str, word: str, understood: bool
) -> None:
    words = rendered(tmp_path, prompt).words
    assert (word in words.understood, word in words.ignored) == (understood, not understood)


def test_negated_weather_is_not_shown(tmp_path: Path) -> None:
    moving = rendered(tmp_path, "rain over a garden without lightning, no wind").data["moving"]
    assert "rain" in moving
    assert not {"lightning", "wind"} & set(moving)


@pytest.mark.parametrize(
    ("prompt", "negative"),
    [
        ("a storm at sea without lightning, no wind", ""),
        ("a storm at sea", "lightning, wind"),
        ("Regen ohne Blitze, kein Wind", ""),
        ("lluvia sin relámpagos, sin viento", ""),
        ("pluie, pas d'éclairs, sans vent", ""),
        ("дождь без молний, без ветра", ""),
        ("雨、雷なし、風のない草原", ""),
        ("下雨，没有闪电，没有风", ""),
        ("a shoe in the wind with lightning on a white background", ""),
    ],
)
def test_denied_wind_and_lightning_are_not_shown(prompt: str, negative: str) -> None:
    assert shown_storm(prompt, negative) == (False, False)


@pytest.mark.parametrize(
    "prompt",
    [
        "a chocolate éclair on a plate",
        "a lightning-fast car on a road",
        "a wind turbine on a hill",
        "a wind-up toy car",
        "a road that winds between hills",
        "アニメ風に描いた猫",
        "こんな風に走る犬",
    ],
)
def test_other_meanings_of_wind_and_lightning_show_nothing(prompt: str) -> None:
    assert shown_storm(prompt) == (False, False)


@pytest.mark.parametrize(
    "prompt", ["a tree in the wind", "ein Baum im Wind", "強い風に揺れる木", "海風が吹く草原"]
)
def test_wind_is_read_in_other_languages(prompt: str) -> None:
    assert shown_storm(prompt) == (True, False)


def test_words_for_what_is_drawn_over_an_image_are_understood(tmp_path: Path) -> None:
    source = tmp_path / "image.png"
    Image.fromarray(landscape().rgb).save(source)
    result = rendered(tmp_path, "lightning and rain, the grass sways in a strong wind", source)
    assert {"lightning", "rain", "wind"} <= set(result.data["moving"])
    assert {"lightning", "rain", "sways", "wind"} <= set(result.words.understood)
