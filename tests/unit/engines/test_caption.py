"""Captions of images with known colors, light, sharpness and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.image.caption.engine import CaptionEngine
from tests.unit.engines.engine_runs import RunContext

COLORS = {
    "red": (210, 30, 40),
    "orange": (240, 140, 20),
    "yellow": (250, 220, 40),
    "green": (50, 160, 60),
    "blue": (30, 60, 210),
    "violet": (110, 50, 180),
    "black": (5, 5, 5),
    "white": (252, 252, 252),
    "brown": (110, 66, 34),
}


def caption_of(folder: Path, pixels: NDArray[Any]) -> dict[str, Any]:
    path = folder / "in.png"
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return dict(CaptionEngine().run(Task("t", "caption", {}, {"image_url": path}), RunContext(folder)).data)


def scene(seed: int = 1) -> NDArray[Any]:
    """Return an image of blue sky above rough green ground."""
    rng = np.random.default_rng(seed)
    pixels = np.zeros((240, 320, 3))
    pixels[:130] = (120, 175, 235)
    pixels[130:] = np.array([50, 130, 45]) + rng.normal(0, 30, (110, 320, 1))
    return np.clip(pixels + rng.normal(0, 4, pixels.shape), 0, 255)


@pytest.mark.parametrize(("name", "rgb"), COLORS.items())
def test_color_is_named(tmp_path: Path, name: str, rgb: tuple[int, int, int]) -> None:
    response = caption_of(tmp_path, np.full((64, 64, 3), rgb))
    assert response["palette"][0]["name"] == name
    assert f"in {name}." in response["text"]
    assert response["kind"] == "an empty plane of one colour"


def test_color_shares_and_image_sizes_are_reported(tmp_path: Path) -> None:
    pixels = np.zeros((100, 300, 3))
    pixels[:, 200:] = (210, 30, 40)
    response = caption_of(tmp_path, pixels)
    assert {color["name"]: color["share"] for color in response["palette"]} == pytest.approx(
        {"black": 0.667, "red": 0.333}, abs=0.02
    )
    assert (response["width"], response["height"]) == (300, 100)
    assert "wide" in response["text"]


def test_a_meadow_under_the_sky_is_a_landscape(tmp_path: Path) -> None:
    assert caption_of(tmp_path, scene())["kind"] == "a landscape under a blue sky"


def test_only_an_even_warm_top_is_a_warm_sky(tmp_path: Path) -> None:
    sunset = np.full((240, 320, 3), (60, 40, 30)) + np.random.default_rng(2).normal(0, 6, (240, 320, 1))
    sunset[:140] += (180, 110, 40)
    flower = sunset.copy()
    flower[:140, 180:] -= (130, 20, 10)
    sunset, flower = np.clip(sunset, 0, 255), np.clip(flower, 0, 255)
    assert caption_of(tmp_path, sunset)["kind"] == "a landscape under a warm sky"
    assert "sky" not in caption_of(tmp_path, flower)["text"]


def test_blurred_image_is_less_sharp(tmp_path: Path) -> None:
    sharp = scene().astype(np.uint8)
    messages = [
        caption_of(tmp_path, image)["sharpness"] for image in (sharp, cv2.GaussianBlur(sharp, (0, 0), 3))
    ]
    assert messages[1] < messages[0] / 2


def test_caption_distinguishes_bright_and_dark_images(tmp_path: Path) -> None:
    assert caption_of(tmp_path, scene() * 0.15)["kind"] == "a night scene"
    assert "bright" in caption_of(tmp_path, np.full((64, 64, 3), 240))["text"]


def test_lines_of_text_are_detected(tmp_path: Path) -> None:
    page = Image.new("RGB", (400, 300), "white")
    pen = ImageDraw.Draw(page)
    for row in range(8):
        pen.text((20, 16 + row * 34), "The quick brown fox jumps over a dog", fill="black", font_size=17)
    response = caption_of(tmp_path, np.asarray(page))
    assert 6 <= response["lettering"] <= 10
    assert response["kind"] == "a page of text"
    assert caption_of(tmp_path, scene())["lettering"] == 0


def test_equal_images_get_equal_captions(tmp_path: Path) -> None:
    assert caption_of(tmp_path, scene()) == caption_of(tmp_path, scene())


@pytest.mark.parametrize("shape", [(1, 4000, 3), (4000, 1, 3)])
def test_lines_of_pixels_are_captioned(tmp_path: Path, shape: tuple[int, ...]) -> None:
    response = caption_of(tmp_path, np.full(shape, 200))
    assert (response["width"], response["height"]) == (shape[1], shape[0])


def test_one_pixel_is_captioned_and_a_missing_image_refused(tmp_path: Path) -> None:
    assert caption_of(tmp_path, np.full((1, 1, 3), 9))["width"] == 1
    with pytest.raises(UnusableInput):
        CaptionEngine().run(Task("t", "caption", {}), RunContext(tmp_path))
