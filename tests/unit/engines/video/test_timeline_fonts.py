"""The fonts of text clips: which characters they have, and which font draws what."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.video.timeline import fonts
from sixfold.engines.video.timeline.engine import TimelineEngine
from tests.unit.engines.video.videos import Recorder

Array = np.ndarray[Any, Any]
# A character for private use, which fonts for text lack.
PRIVATE = "\ue0ff"


def require(text: str) -> None:
    if fonts.missing_characters(text):
        pytest.skip(f"no installed font has all of {text!r}: install fonts-wqy-microhei or fonts-noto-cjk")


def render_text(text: str, size: float = 40) -> Array:
    font = fonts.for_text(text, size)
    image = Image.new("L", (round(font.getlength(text)) + 10, 80), 0)
    font.draw(ImageDraw.Draw(image), 5, 10, text)
    return np.asarray(image)


def character_ink(letter: str, path: str | None, size: float = 40) -> Array:
    font: Any = ImageFont.truetype(path, size) if path else ImageFont.load_default(size)
    image = Image.new("L", (80, 80), 0)
    ImageDraw.Draw(image).text((10, 10), letter, font=font, fill=255)
    return np.asarray(image.crop(image.getbbox()))


def shows(image: Array, glyph: Array) -> float:
    """Return how well a glyph is found in an image, up to 1."""
    return float(cv2.matchTemplate(image, glyph, cv2.TM_CCOEFF_NORMED).max())


def test_ascii_is_drawn_with_the_bundled_font() -> None:
    assert fonts.missing_characters("Hello, you! (50%) ~ {x}") == ()
    assert shows(render_text("Hello"), character_ink("H", None)) > 0.95


def test_latin_letters_need_no_installed_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "installed", tuple)
    assert fonts.missing_characters("Été à Łódź, Ærø, İzmir, 5 €") == ()
    assert fonts.missing_characters("Жук 世") == tuple("Жук世")
    assert render_text("Łé").max() > 200


def test_characters_without_a_glyph_are_named_once_in_order() -> None:
    assert fonts.missing_characters(f"a{PRIVATE}b\U0010fffd{PRIVATE}") == (PRIVATE, "\U0010fffd")
    assert fonts.missing_characters("no\u200d glyph\ufe0f is needed\n\u0007") == ()


def test_mixed_text_is_drawn_with_one_complete_font() -> None:
    require(text := "Hello 世界")
    (font,) = [font for font in fonts.installed() if font.count("Helo世界") == 6][:1] or (None,)
    if font is None:
        pytest.skip("no installed font has both Latin and Chinese characters")
    image = render_text(text)
    for letter in "H世界":
        assert shows(image, character_ink(letter, font.path)) > 0.95


def test_each_text_run_is_drawn_with_a_font_for_it() -> None:
    require(text := "世界 😀 ok")
    chinese = next(font for font in fonts.installed() if font.has("世"))
    smiling = next(font for font in fonts.installed() if font.has("😀"))
    if chinese.has("😀"):
        pytest.skip("one installed font has both Chinese characters and emoji")
    image = render_text(text)
    assert shows(image, character_ink("世", chinese.path)) > 0.95
    assert shows(image, character_ink("😀", smiling.path)) > 0.95
    assert shows(image, character_ink("世", smiling.path)) < 0.8


def test_worker_without_the_fonts_of_the_server_fails(tmp_path: Path) -> None:
    clip = {"text": f"x{PRIVATE}", "duration": 0.2}
    project = timeline.check({"width": 64, "height": 64, "tracks": [{"type": "text", "clips": [clip]}]})
    with pytest.raises(UnusableInput, match=r"tracks\[0\].clips\[0\]: text contains characters .* U\+E0FF"):
        TimelineEngine().run(Task("id", "render", {"project": project}), Recorder(tmp_path))


def font_file(*, offset: int, length: int, outlines: bool = True, subtable: bytes = b"") -> io.BytesIO:
    """Return a font with a character map of one subtable, without anything else."""
    cmap = struct.pack(">HHHHI", 0, 1, 3, 10, 12) + subtable
    rows = struct.pack(">4sIII", b"cmap", 0, offset, length)
    rows += struct.pack(">4sIII", b"glyf" if outlines else b"CBDT", 0, 0, 0)
    return io.BytesIO(b"\0\1\0\0" + struct.pack(">HHHH", 2, 0, 0, 0) + rows + cmap)


GROUPS = struct.pack(">HHIII", 12, 0, 28, 0, 2) + struct.pack(">6I", 0x41, 0x43, 0, 0x4E16, 0x4E16, 9)
# Segments "a" to "c", of which "b" has no glyph, and the last one, which every map has.
SEGMENTS = struct.pack(
    ">7H 2HH2H2H2H 3H", *(4, 0, 0, 4, 0, 0, 0), *(0x63, 0xFFFF, 0, 0x61, 0xFFFF, 0, 1, 4, 0), *(5, 0, 6)
)


def test_character_maps_of_both_formats_are_read() -> None:
    for subtable, expected in (
        (GROUPS, [(0x42, 0x43), (0x4E16, 0x4E16)]),
        (SEGMENTS, [(0x61, 0x61), (0x63, 0x63)]),
    ):
        file = font_file(offset=44, length=12 + len(subtable), subtable=subtable)
        assert fonts.character_ranges(file) == expected
    bitmaps = font_file(offset=44, length=99, outlines=False, subtable=GROUPS)
    assert fonts.character_ranges(bitmaps) == []


@pytest.mark.parametrize("data", [b"", b"ttcf", b"ttcf" + b"\xff" * 12])
def test_truncated_font_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="the font ends before its character map"):
        fonts.character_ranges(io.BytesIO(data))
