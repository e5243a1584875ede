"""Pictures of data and of shares: sizes, long titles, scripts of other languages, and drawings."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFont

from sixfold.core.media.drawings import Drawing, Label, Shape, ShareCard
from sixfold.engines.thumbnails import shapes
from sixfold.ui.predictions import data_drawings


def pixels(content: bytes) -> np.ndarray:
    """Return the colors with their opacity by row and column."""
    return np.asarray(opened(content).convert("RGBA")).astype(int)


def opened(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content))


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("A plan", "We repair the pier."),
        ("x" * 5000, "y" * 5000),
        ("", ""),
        ("Plan 山の家 \u0000", "α β γ"),
    ],
)
def test_a_card_has_the_size_that_its_page_states(title: str, text: str) -> None:
    image = opened(shapes.render_card(ShareCard("Sixfold · Page", title, text), b""))
    assert (image.size, image.format) == ((1200, 630), "JPEG")


@pytest.mark.parametrize("text", ["w" * 600, "a山" * 300, "i " * 300])
def test_a_card_measures_its_texts_in_few_steps(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A text that changes its font with each character took 2 million steps, in 175 s."""
    lengths: list[int] = []
    measure = ImageFont.FreeTypeFont.getlength

    def counted(font: Any, run: str, *arguments: Any) -> float:
        lengths.append(len(run))
        return measure(font, run, *arguments)

    monkeypatch.setattr(ImageFont.FreeTypeFont, "getlength", counted)
    shapes.render_card(ShareCard("Sixfold · Page", text[:200], text), b"")
    assert len(lengths) < 1000
    assert sum(lengths) < 60_000


def test_a_label_with_line_breaks_is_drawn_in_one_line() -> None:
    label = Label(0, 0, "\ufdfa山\n\u2029x", 12.0, "#000000")
    card = ShareCard("Workflow", "A", "", drawing=Drawing(320, 160, labels=(label,)))
    assert opened(shapes.render_card(card, b"")).size == (1200, 630)


def test_a_card_shows_a_picture_or_a_drawing() -> None:
    picture = io.BytesIO()
    Image.new("RGBA", (40, 90), (255, 0, 0, 255)).save(picture, "WEBP")
    shown = pixels(shapes.render_card(ShareCard("Result", "A fox", ""), picture.getvalue()))
    assert shown[300, 900, 0] > 200
    graph = Drawing(300, 100, (Shape(((100, 20), (200, 20), (200, 90), (100, 90)), "#0000ff"),))
    drawn = pixels(shapes.render_card(ShareCard("Workflow", "A", "", drawing=graph), b""))
    red, _, blue, _ = drawn[440, 600]
    assert (red < 60, blue > 200) == (True, True)


def test_pictures_of_data_are_small_and_transparent() -> None:
    series = {"series": [1, 3, 2, 5, 4]}
    bounds = {"80": {"lower": [4, 4], "upper": [6, 7]}}
    many = {"embeddings": [[(row * cell) % 7 - 3.0 for cell in range(700)] for row in range(20)]}
    results = [
        data_drawings.draw("forecast", series, {"mean": [5, 5.5], "intervals": bounds}),
        data_drawings.draw("embeddings", {}, many),
        data_drawings.draw("other", {}, {"name": "x" * 500, "list": [1], "fields": {}, "n": 1.5}),
    ]
    for drawing in results:
        assert drawing is not None
        content = shapes.render(drawing)
        opacity = pixels(content)[..., 3]
        assert (opacity.shape, len(content) <= 40_000) == ((320, 320), True)
        assert (opacity[1, 1], opacity.max() > 100) == (0, True)
    assert data_drawings.draw("other", {}, {}) is None


def test_labels_are_drawn() -> None:
    image = opened(shapes.render(Drawing(100, 100, labels=(Label(10, 10, "Text", 30, "#000000"),))))
    assert image.convert("RGBA").getchannel("A").getbbox() is not None
