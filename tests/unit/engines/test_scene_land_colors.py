"""A color before a word for land, water or the sky colors only that part of the image."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines.image.scene import painter, prompt_parser
from tests.unit.engines import scene_pixels as pixels


@cache
def paint(prompt: str) -> pixels.Picture:
    scene = prompt_parser.parse(prompt)
    image = painter.paint(scene, "ra1", 7, (256, 384), lambda _step: None)
    return np.round(image[..., ::-1] * 255).clip(0, 255).astype(np.uint8)


def share(part: pixels.Picture, hues: tuple[float, float]) -> float:
    """Return the share of saturated pixels with a hue in a range of degrees, which may include 360."""
    hue, saturation, _ = pixels.hsv(part)
    low, high = hues
    within = (hue >= low) & (hue <= high) if low <= high else (hue >= low) | (hue <= high)
    return float((within & (saturation > 0.25)).mean())


GREEN, RED, PURPLE, PINK, TEAL = (70, 170), (345, 30), (245, 300), (290, 345), (165, 197)
PARTS = [
    ("green hills at sunrise", GREEN, "lower"),
    ("a red desert at noon", RED, "lower"),
    ("a purple meadow", PURPLE, "lower"),
    ("a turquoise lake in the mountains", TEAL, "lower"),
    ("a pink sky over a green field", PINK, "upper"),
    ("purple skies over the desert", PURPLE, "upper"),
]


@pytest.mark.parametrize(("prompt", "hues", "where"), PARTS)
def test_color_of_land_or_sky_stays_in_its_part(prompt: str, hues: tuple[int, int], where: str) -> None:
    picture = paint(prompt)
    parts = {"upper": picture[:85], "lower": picture[190:230]}
    other = "upper" if where == "lower" else "lower"
    assert share(parts[where], hues) > 0.4
    assert share(parts[other], hues) < 0.15


@pytest.mark.parametrize(
    ("prompt", "ignored"),
    [
        ("blue mountains at dawn", ()),
        ("blue mountains by a lake", ("blue",)),
        ("a blue bay, mountains behind", ()),
        ("a pink sky", ()),
        ("a purple sky in a bedroom", ("sky",)),
        ("a red apple on a white background, a rainbow", ("rainbow",)),
        ("a green forest", ()),
        ("a lemon on a table", ("lemon",)),
        ("a bowl of oranges on a table", ("bowl", "oranges")),
    ],
)
def test_words_of_colored_parts_are_understood(prompt: str, ignored: tuple[str, ...]) -> None:
    words = prompt_parser.parse(prompt).words
    assert isinstance(words, PromptWords)
    assert words.ignored == ignored


def test_fruit_named_like_a_color_does_not_color_the_room() -> None:
    for prompt in ("a lemon on a table", "a bowl of oranges on a table", "a ripe orange by the window"):
        assert prompt_parser.parse(prompt).colors == ()
    assert prompt_parser.parse("an orange room").colors == ("orange",)
