"""Of a text that is larger than the frame, only the visible part is rendered, with the same pixels."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sixfold.core.catalog import timeline
from sixfold.engines.video.timeline import compositing, text

MIB = 2**20
PLAIN = {"width": 160, "height": 90, "fps": 1, "background": "#204060"}


def drawn(clip: dict[str, Any]) -> NDArray[Any]:
    """Return a frame with the text."""
    checked = timeline.check({**PLAIN, "tracks": [{"type": "text", "clips": [{"duration": 1, **clip}]}]})
    project = timeline.parse(checked)
    rgb = compositing.FORMATS["gif"]
    canvas = rgb.fill((160, 90), (32, 64, 96))
    compositing.draw(rgb, canvas, rgb.layer(text.of(project.tracks[0].clips[0], project)))
    return canvas[0]


CLIPS: list[dict[str, Any]] = [
    {"text": "wide words " * 20, "style": {"font_size": 60}},
    {"text": "wide words " * 20, "width": 700, "x": -300, "y": -200, "style": {"font_size": 60}},
    {"text": "W" * 200, "width": 700, "height": 700, "x": -200, "y": -200, "style": {"font_size": 90}},
    {"text": "W" * 90, "style": {"font_size": 50, "background": "#800000", "color": "#ffffff80"}},
    {"text": "outside", "x": 7000, "y": 7000, "width": 100, "height": 100, "style": {"font_size": 60}},
]


@pytest.mark.parametrize("rotation", [0, 33, 90, -200])
@pytest.mark.parametrize("clip", CLIPS, ids=range(len(CLIPS)))
def test_the_visible_part_has_the_pixels_of_the_whole(
    clip: dict[str, Any], rotation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated = {**clip, "rotation": rotation}
    full_image = drawn(rotated)
    monkeypatch.setattr(text, "MAX_WHOLE_PIXELS", 0)
    difference = np.abs(drawn(rotated).astype(int) - full_image)
    # Rotation rounds positions to fractions of a pixel.
    assert difference.max() <= (16 if rotation % 90 else 0)
    assert difference.mean() < 0.1


def test_a_text_of_2000_huge_letters_takes_little_memory() -> None:
    clip = {"text": "W" * 2000, "width": 7680, "height": 7680, "style": {"font_size": 1000}}
    tracemalloc.start()
    try:
        frame = drawn(clip)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frame.std() > 0
    assert peak < 100 * MIB
