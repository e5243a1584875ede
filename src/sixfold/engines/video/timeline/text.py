"""A text as pixels: wrapped into its box, its lines aligned, on a ground of its own where it asks for one.

Without one it has a soft rim, dark about light letters and light about dark ones, and is read on any picture.
The letters are those that come with Pillow; where they lack one, a face of this machine that has them all.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sixfold.core.catalog import css_colors
from sixfold.core.catalog.timeline import Clip, Project
from sixfold.engines.video import decoder
from sixfold.engines.video.timeline import sprites
from sixfold.engines.video.timeline.sprites import Sprite, SpriteBox

Array = NDArray[Any]

_SHARE = 15  # of the frame's height that a letter has, where nothing is said
_LEAST = 12.0  # pixels that a letter keeps where its size is not said and its lines are too many
_SMALLER = 0.92  # from one try to the next
_MARGIN = 0.05  # of the frame's side, left free where the clip does not say where it ends
_LEADING = 1.25  # of the letter's size, from line to line
_INSET = 0.35  # of it, between the lines and the edge of their ground
_ROUND = 0.18
_RIM = 0.045  # of it, how far the rim fades
_RIM_GAIN, _RIM_MOST = 2.6, 0.82
_LIGHT = 0.43  # the luma from which letters are light
_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "/Library/Fonts", "/System/Library/Fonts")
_STYLED = ("Bold", "Italic", "Oblique", "Mono", "Light", "Thin", "Condensed", "Serif", "Black")
_MISSING = "\U0010fffe"  # no face has it: what is drawn for it is drawn for all that are missing
_PICTURES = ("So", "Sk", "Mn")  # emoji and what changes them: left out where no face has them


@dataclass(frozen=True, slots=True)
class _TextLines:
    """A text's lines at a size, in pixels."""

    lines: tuple[str, ...]
    font: Any
    size: float
    inset: int

    @property
    def widths(self) -> list[float]:
        """Of each line."""
        return [self.font.getlength(line) for line in self.lines]

    @property
    def step(self) -> float:
        """From line to line."""
        return self.size * _LEADING

    @property
    def height(self) -> int:
        """Of all of them with their ground."""
        return round(self.step * len(self.lines)) + 2 * self.inset


def of(clip: Clip, project: Project) -> Sprite:
    """The text of a clip in its place."""
    box = _room(clip, project)
    block, bleed = _block(clip, _fitted(clip, box, project))
    height, width = block.shape[:2]
    left = round(box.left + _aside(clip, box.width - width + 2 * bleed)) - bleed
    top = round(box.top + _down(clip, box.height - height + 2 * bleed)) - bleed
    if clip.rotation % 360:
        around = SpriteBox(left, top, width, height) if clip.width is None and clip.height is None else box
        return sprites.turned(block, (left, top), around, clip.rotation)
    return sprites.sprite(block, left, top)


def _room(clip: Clip, project: Project) -> SpriteBox:
    """The clip's box, less a margin at those edges of the frame that it does not reach by its own word."""
    box = sprites.box_of(clip, project)
    left, width = box.left, box.width
    if clip.width is None:
        left, width = _clear(left, width, project.width, clip.x is None)
    top, height = box.top, box.height
    if clip.y is None and clip.height is None:
        top, height = _clear(top, height, project.height, True)
    return SpriteBox(left, top, width, height)


def _clear(at: float, length: float, whole: int, both: bool) -> tuple[float, float]:
    """A stretch that ends at the frame's edge, kept clear of it there or at both of its ends."""
    margin = whole * _MARGIN
    if at + length != whole or length <= 2 * margin:
        return at, length
    return (at + margin, length - 2 * margin) if both else (at, length - margin)


def _fitted(clip: Clip, box: SpriteBox, project: Project) -> _TextLines:
    """The lines in the size that is said; else in the usual one, or a smaller one in which they fit."""
    size = clip.style.font_size or max(_LEAST, project.height / _SHARE)
    font, text = _face(clip.text, size)
    grounded = bool((css_colors.rgba(clip.style.background or "") or (0, 0, 0, 0))[3])
    while True:
        inset = round(size * _INSET) if grounded else 0
        lines = _wrapped(text, font, max(1.0, box.width - 2 * inset))
        found = _TextLines(tuple(lines), font, size, inset)
        if clip.style.font_size or size <= _LEAST or found.height <= box.height:
            return found
        size = max(_LEAST, size * _SMALLER)
        font = font.font_variant(size=size)


def _align(clip: Clip) -> str:
    """As it says; else in the middle, but from the left where only a place is given."""
    return clip.style.align or ("left" if clip.x is not None and clip.width is None else "center")


def _aside(clip: Clip, room: float) -> float:
    return {"left": 0.0, "center": room / 2, "right": room}[_align(clip)]


def _down(clip: Clip, room: float) -> float:
    return 0.0 if clip.y is not None and clip.height is None else room / 2


def _block(clip: Clip, text: _TextLines) -> tuple[Array, int]:
    """The lines as weighed RGBA, as large as they need, and by how much their rim goes beyond them."""
    ground = css_colors.rgba(clip.style.background or "") or (0, 0, 0, 0)
    widths, inset = text.widths, text.inset
    width = round(max(widths)) + 2 * inset + 2
    image = Image.new("RGBA", (min(width, 16384), min(text.height, 16384)), (0, 0, 0, 0))
    if ground[3]:
        edge = (0, 0, image.width - 1, image.height - 1)
        ImageDraw.Draw(image).rounded_rectangle(edge, text.size * _ROUND, fill=ground)
    cover = Image.new("L", image.size, 0)
    letters = ImageDraw.Draw(cover)
    ascent, descent = text.font.getmetrics()
    high = inset + (text.step - ascent - descent) / 2
    for number, (line, wide) in enumerate(zip(text.lines, widths, strict=True)):
        x = inset + 1 + _aside(clip, image.width - 2 * inset - 2 - wide)
        letters.text((x, high + number * text.step), line, font=text.font, fill=255)
    colour = css_colors.rgba(clip.style.color) or (255, 255, 255, 255)
    under, inked, bleed = decoder.premultiplied(np.asarray(image)), np.asarray(cover), 0
    if clip.style.background is None:
        bleed = math.ceil(3 * text.size * _RIM)
        inked = np.pad(inked, bleed)
        under = _rim(inked, text.size * _RIM, colour)
    return _inked(under, inked, colour), bleed


def _rim(cover: Array, reach: float, colour: css_colors.Color) -> Array:
    """A soft rim about letters, weighed; none of it shines through letters that are clear."""
    red, green, blue, strength = (part / 255 for part in colour)
    tone = 0.0 if 0.299 * red + 0.587 * green + 0.114 * blue >= _LIGHT else 255.0
    letters = cover.astype(np.float32) / 255
    soft = np.clip(cv2.GaussianBlur(letters, (0, 0), reach) * np.float32(_RIM_GAIN), 0, _RIM_MOST)
    share = soft * strength * (1 if strength == 1 else 1 - letters)
    return np.rint(share[..., None] * np.array([tone, tone, tone, 255], np.float32)).astype(np.uint8)


def _inked(under: Array, cover: Array, colour: css_colors.Color) -> Array:
    """Letters of a colour on what is under them, both weighed."""
    share = (cover.astype(np.float32) * (colour[3] / 255 / 255))[..., None]
    ink = np.array([*colour[:3], 255], np.float32)
    return np.rint(under.astype(np.float32) * (1 - share) + ink * share).astype(np.uint8)


def _wrapped(text: str, font: Any, width: float) -> list[str]:
    lines: list[str] = []
    for paragraph in text.expandtabs(4).splitlines() or [""]:
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


def _face(text: str, size: float) -> tuple[Any, str]:
    """The face with most letters of a text, the usual one at best; and what of the text it draws."""
    text = _visible(text)
    letters = frozenset(letter for letter in text if not letter.isspace() and letter.isprintable())
    best: Any = ImageFont.load_default(size)
    lacking = _lacking(best, letters)
    for path in _installed() if lacking else ():
        try:
            font = ImageFont.truetype(path, size)
        except OSError:
            continue
        fewer = _lacking(font, letters)
        if len(fewer) < len(lacking):
            best, lacking = font, fewer
        if not lacking:
            break
    blank = {letter for letter in lacking if category(letter) in _PICTURES}
    return best, "".join(letter for letter in text if letter not in blank)


def _lacking(font: Any, letters: frozenset[str]) -> frozenset[str]:
    none = bytes(font.getmask(_MISSING))
    return frozenset(letter for letter in letters if bytes(font.getmask(letter)) == none)


@cache
def _installed() -> tuple[str, ...]:
    """The faces of this machine, regular ones first, in an order that stays."""
    found = itertools.chain.from_iterable(Path(folder).rglob("*.[to]t[fc]") for folder in _FOLDERS)
    names = sorted(str(path) for path in found)
    return tuple(name for name in names if not any(word in name for word in _STYLED))[:64]
