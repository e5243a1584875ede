"""A text as pixels: wrapped into its box, its lines aligned, on a ground of its own where it asks for one.

The letters are those that come with Pillow; where they lack one, a face of this machine that has them all.
"""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sixfold.core.work import colours
from sixfold.core.work.timeline import Clip, Project
from sixfold.engines.video import reading
from sixfold.engines.video.timeline import sprites
from sixfold.engines.video.timeline.sprites import Box, Sprite

Array = NDArray[Any]

_SHARE = 15  # of the frame's height that a letter has, where nothing is said
_LEADING = 1.25  # of the letter's size, from line to line
_INSET = 0.35  # of it, between the lines and the edge of their ground
_ROUND = 0.18
_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "/Library/Fonts", "/System/Library/Fonts")
_STYLED = ("Bold", "Italic", "Oblique", "Mono", "Light", "Thin", "Condensed", "Serif", "Black")
_MISSING = "\U0010fffe"  # no face has it: what is drawn for it is drawn for all that are missing


def of(clip: Clip, project: Project) -> Sprite:
    """The text of a clip in its place."""
    box = sprites.box_of(clip, project)
    size = clip.style.font_size or max(12, project.height / _SHARE)
    block = _block(clip, box, size)
    height, width = block.shape[:2]
    left = round(box.left + _aside(clip, box.width - width))
    top = round(box.top + _down(clip, box.height - height))
    if clip.rotation % 360:
        around = Box(left, top, width, height) if clip.width is None and clip.height is None else box
        return sprites.turned(block, (left, top), around, clip.rotation)
    return sprites.sprite(block, left, top)


def _align(clip: Clip) -> str:
    """As it says; else in the middle, but from the left where only a place is given."""
    return clip.style.align or ("left" if clip.x is not None and clip.width is None else "center")


def _aside(clip: Clip, room: float) -> float:
    return {"left": 0.0, "center": room / 2, "right": room}[_align(clip)]


def _down(clip: Clip, room: float) -> float:
    return 0.0 if clip.y is not None and clip.height is None else room / 2


def _block(clip: Clip, box: Box, size: float) -> Array:
    """The lines as weighed RGBA, as large as they need."""
    font = _face(clip.text, size)
    ground = colours.rgba(clip.style.background or "") or (0, 0, 0, 0)
    inset = round(size * _INSET) if ground[3] else 0
    lines = _wrapped(clip.text, font, max(1.0, box.width - 2 * inset))
    widths = [font.getlength(line) for line in lines]
    step = size * _LEADING
    width = round(max(widths)) + 2 * inset + 2
    height = round(step * len(lines)) + 2 * inset
    image = Image.new("RGBA", (min(width, 16384), min(height, 16384)), (0, 0, 0, 0))
    pen = ImageDraw.Draw(image)
    if ground[3]:
        pen.rounded_rectangle((0, 0, image.width - 1, image.height - 1), size * _ROUND, fill=ground)
    cover = Image.new("L", image.size, 0)
    letters = ImageDraw.Draw(cover)
    ascent, descent = font.getmetrics()
    for number, (line, wide) in enumerate(zip(lines, widths, strict=True)):
        room = image.width - 2 * inset - 2 - wide
        x = inset + 1 + {"left": 0.0, "center": room / 2, "right": room}[_align(clip)]
        letters.text((x, inset + number * step + (step - ascent - descent) / 2), line, font=font, fill=255)
    colour = colours.rgba(clip.style.color) or (255, 255, 255, 255)
    return _inked(np.asarray(image), np.asarray(cover), colour)


def _inked(ground: Array, cover: Array, colour: colours.Colour) -> Array:
    """Letters of a colour on their ground, both weighed."""
    share = (cover.astype(np.float32) * (colour[3] / 255 / 255))[..., None]
    ink = np.array([*colour[:3], 255], np.float32)
    under = reading.premultiplied(ground).astype(np.float32)
    return np.rint(under * (1 - share) + ink * share).astype(np.uint8)


def _wrapped(text: str, font: Any, width: float) -> list[str]:
    lines: list[str] = []
    for paragraph in _visible(text).expandtabs(4).splitlines() or [""]:
        line = ""
        for word in paragraph.split(" "):
            wider = f"{line} {word}" if line else word
            if line and font.getlength(wider) > width:
                lines.append(line)
                wider = word
            *whole, line = _broken(wider, font, width)
            lines.extend(whole)
        lines.append(line)
    return lines


def _visible(text: str) -> str:
    """Without what is no letter (bells, joiners, marks of direction), which would be drawn as boxes."""
    return "".join(sign for sign in text if sign.isspace() or category(sign) not in ("Cc", "Cf"))


def _broken(word: str, font: Any, width: float) -> list[str]:
    """A word that is wider than its line, in pieces that fit."""
    if font.getlength(word) <= width:
        return [word]
    pieces, piece = [], ""
    for letter in word:
        if piece and font.getlength(piece + letter) > width:
            pieces.append(piece)
            piece = ""
        piece += letter
    return [*pieces, piece]


def _face(text: str, size: float) -> Any:
    """The face that has the letters of a text: the usual one unless another has more of them."""
    letters = frozenset(letter for letter in text if not letter.isspace() and letter.isprintable())
    usual: Any = ImageFont.load_default(size)
    lacking = _lacking(usual, letters)
    if not lacking:
        return usual
    best = usual
    for path in _installed():
        try:
            font = ImageFont.truetype(path, size)
        except OSError:
            continue
        fewer = _lacking(font, letters)
        if len(fewer) < len(lacking):
            best, lacking = font, fewer
        if not lacking:
            break
    return best


def _lacking(font: Any, letters: frozenset[str]) -> frozenset[str]:
    none = bytes(font.getmask(_MISSING))
    return frozenset(letter for letter in letters if bytes(font.getmask(letter)) == none)


@cache
def _installed() -> tuple[str, ...]:
    """The faces of this machine, regular ones first, in an order that stays."""
    found = itertools.chain.from_iterable(Path(folder).rglob("*.[to]t[fc]") for folder in _FOLDERS)
    names = sorted(str(path) for path in found)
    return tuple(name for name in names if not any(word in name for word in _STYLED))[:64]
