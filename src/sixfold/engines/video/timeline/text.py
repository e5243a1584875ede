"""Rendering of text clips: wrapped into a box, aligned, with an optional background.

Text without a background gets a soft outline, dark around light letters and light around dark ones, so that
it is legible on any image. `fonts` selects the fonts.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sixfold.core.catalog import css_colors
from sixfold.core.catalog.timeline import Clip, Project
from sixfold.engines.video import decoder
from sixfold.engines.video.timeline import fonts, sprites
from sixfold.engines.video.timeline.fonts import TextFont
from sixfold.engines.video.timeline.sprites import Sprite, SpriteBox

Array = NDArray[Any]

# The default font size is the frame's height divided by this.
_DEFAULT_LINES = 15
# The smallest font size, in pixels, to which text without an explicit size is reduced.
_MIN_SIZE = 12.0
# The factor between successive font sizes in the search for a size that fits.
_SHRINK = 0.92
# The margin at the frame's edges, as a fraction of its side, if the clip does not set its bounds.
_MARGIN = 0.05
# Shares of the font size: line height, padding and corner radius of the background, and outline.
_LEADING = 1.25
_INSET = 0.35
_ROUND = 0.18
_OUTLINE = 0.045
_OUTLINE_GAIN, _OUTLINE_MAX = 2.6, 0.82
_MAX_SIDE = 16_384
# Of a larger block, only the part that the frame shows is rendered.
MAX_WHOLE_PIXELS = 4 * 2**20
# The luma from which letters count as light.
_LIGHT = 0.43


class _TextLines(msgspec.Struct, frozen=True):
    """The lines of a text clip at a font size in pixels."""

    lines: tuple[str, ...]
    font: TextFont
    size: float
    inset: int

    @property
    def widths(self) -> list[float]:
        return [self.font.getlength(line) for line in self.lines]

    @property
    def block_size(self) -> tuple[int, int]:
        """The width and height of the block in pixels, without the outline."""
        width = round(max(self.widths)) + 2 * self.inset + 2
        return min(width, _MAX_SIDE), min(self.height, _MAX_SIDE)

    @property
    def step(self) -> float:
        """The line height in pixels."""
        return self.size * _LEADING

    @property
    def height(self) -> int:
        """The total height in pixels with the background's padding."""
        return round(self.step * len(self.lines)) + 2 * self.inset


def of(clip: Clip, project: Project) -> Sprite:
    box = _text_box(clip, project)
    text = _layout(clip, box, project)
    bleed = math.ceil(3 * text.size * _OUTLINE) if clip.style.background is None else 0
    width, height = text.block_size
    left = round(box.left + _left_offset(clip, box.width - width)) - bleed
    top = round(box.top + _top_offset(clip, box.height - height)) - bleed
    around = box
    if clip.width is None and clip.height is None:
        around = SpriteBox(left, top, width + 2 * bleed, height + 2 * bleed)
    window = (0, 0, width, height)
    if width * height > MAX_WHOLE_PIXELS:
        margin = bleed + math.ceil(4 * text.size * _OUTLINE) + 2
        window = _visible_window(clip, project, around, (left + bleed, top + bleed), (width, height), margin)
    corner = (left + window[0], top + window[1])
    block = _render(clip, text, window, bleed)
    if clip.rotation % 360:
        return sprites.rotate(block, corner, around, clip.rotation)
    return sprites.sprite(block, *corner)


def _visible_window(
    clip: Clip,
    project: Project,
    around: SpriteBox,
    corner: tuple[int, int],
    size: tuple[int, int],
    margin: int,
) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the part of a block at `corner` that the frame shows.

    The part has a margin, and at least one pixel.
    """
    middle = (around.left + around.width / 2, around.top + around.height / 2)
    matrix = cv2.getRotationMatrix2D(middle, clip.rotation, 1.0)
    right, bottom = project.width + 1, project.height + 1
    corners = np.array([[0, 0, 1], [right, 0, 1], [0, bottom, 1], [right, bottom, 1]]) @ matrix.T - corner
    low = np.floor(corners.min(0)).astype(int) - margin
    high = np.ceil(corners.max(0)).astype(int) + margin
    x0, y0 = (int(np.clip(at, 0, side - 1)) for at, side in zip(low, size, strict=True))
    x1, y1 = (int(np.clip(at, 1, side)) for at, side in zip(high, size, strict=True))
    return x0, y0, max(x1, x0 + 1), max(y1, y0 + 1)


def _text_box(clip: Clip, project: Project) -> SpriteBox:
    """Return the clip's box, with a margin at the frame's edges where the clip does not set its bounds."""
    box = sprites.box_of(clip, project)
    left, width = box.left, box.width
    if clip.width is None:
        left, width = _inset_range(left, width, project.width, clip.x is None)
    top, height = box.top, box.height
    if clip.y is None and clip.height is None:
        top, height = _inset_range(top, height, project.height, True)
    return SpriteBox(left, top, width, height)


def _inset_range(at: float, length: float, total: int, both_ends: bool) -> tuple[float, float]:
    """Return a range with a margin added where it ends at the frame's edge, at its end or at both ends."""
    margin = total * _MARGIN
    if at + length != total or length <= 2 * margin:
        return at, length
    return (at + margin, length - 2 * margin) if both_ends else (at, length - margin)


def _layout(clip: Clip, box: SpriteBox, project: Project) -> _TextLines:
    """Break the text into lines at the clip's font size, or at the largest default size that fits."""
    size = clip.style.font_size or max(_MIN_SIZE, project.height / _DEFAULT_LINES)
    text = fonts.visible(clip.text)
    font = fonts.for_text(text, size)
    has_background = bool((css_colors.rgba(clip.style.background or "") or (0, 0, 0, 0))[3])
    while True:
        inset = round(size * _INSET) if has_background else 0
        lines = _wrap(text, font, max(1.0, box.width - 2 * inset))
        layout = _TextLines(tuple(lines), font, size, inset)
        if clip.style.font_size or size <= _MIN_SIZE or layout.height <= box.height:
            return layout
        size = max(_MIN_SIZE, size * _SHRINK)
        font = font.font_variant(size)


def _align(clip: Clip) -> str:
    """Return the alignment; the default is centered, or left-aligned if only a position is set."""
    return clip.style.align or ("left" if clip.x is not None and clip.width is None else "center")


def _left_offset(clip: Clip, space: float) -> float:
    return {"left": 0.0, "center": space / 2, "right": space}[_align(clip)]


def _top_offset(clip: Clip, space: float) -> float:
    return 0.0 if clip.y is not None and clip.height is None else space / 2


def _render(clip: Clip, text: _TextLines, window: tuple[int, int, int, int], bleed: int) -> Array:
    """Render the part of the lines in a window as premultiplied RGBA, with `bleed` pixels around it."""
    background = css_colors.rgba(clip.style.background or "") or (0, 0, 0, 0)
    widths, inset = text.widths, text.inset
    (width, height), (left, top, right, bottom) = text.block_size, window
    image = Image.new("RGBA", (right - left, bottom - top), (0, 0, 0, 0))
    if background[3]:
        edge = (-left, -top, width - 1 - left, height - 1 - top)
        ImageDraw.Draw(image).rounded_rectangle(edge, text.size * _ROUND, fill=background)
    mask_image = Image.new("L", image.size, 0)
    letters = ImageDraw.Draw(mask_image)
    ascent, descent = text.font.getmetrics()
    baseline = inset + (text.step - ascent - descent) / 2
    for number, (line, line_width) in enumerate(zip(text.lines, widths, strict=True)):
        y = baseline + number * text.step
        # Letters may extend beyond their line by its height.
        if top - 2 * text.step <= y <= bottom + text.step:
            x = inset + 1 + _left_offset(clip, width - 2 * inset - 2 - line_width)
            text.font.draw(letters, x - left, y - top, line)
    color = css_colors.rgba(clip.style.color) or (255, 255, 255, 255)
    pixels, mask = decoder.premultiply(np.asarray(image)), np.asarray(mask_image)
    if bleed:
        mask = np.pad(mask, bleed)
        pixels = _outline(mask, text.size * _OUTLINE, color)
    return _blend_letters(pixels, mask, color)


def _outline(letters: Array, reach: float, color: css_colors.Color) -> Array:
    """Return a soft outline as premultiplied RGBA, which is invisible behind translucent letters."""
    red, green, blue, strength = (part / 255 for part in color)
    tone = 0.0 if 0.299 * red + 0.587 * green + 0.114 * blue >= _LIGHT else 255.0
    letters = letters.astype(np.float32) / 255
    soft = np.clip(cv2.GaussianBlur(letters, (0, 0), reach) * np.float32(_OUTLINE_GAIN), 0, _OUTLINE_MAX)
    share = soft * strength * (1 if strength == 1 else 1 - letters)
    return np.rint(share[..., None] * np.array([tone, tone, tone, 255], np.float32)).astype(np.uint8)


def _blend_letters(pixels: Array, letters: Array, color: css_colors.Color) -> Array:
    share = (letters.astype(np.float32) * (color[3] / 255 / 255))[..., None]
    ink = np.array([*color[:3], 255], np.float32)
    return np.rint(pixels.astype(np.float32) * (1 - share) + ink * share).astype(np.uint8)


def _wrap(text: str, font: TextFont, width: float) -> list[str]:
    lines: list[str] = []
    for paragraph in text.expandtabs(4).splitlines() or [""]:
        line = ""
        for word in paragraph.split(" "):
            candidate = f"{line} {word}" if line else word
            if line and font.getlength(candidate) > width:
                lines.append(line)
                candidate = word
            *complete, line = _break_word(candidate, font, width)
            lines.extend(complete)
        lines.append(line)
    return lines


def _break_word(word: str, font: TextFont, width: float) -> list[str]:
    """Split a word that is wider than `width` into parts that fit."""
    if font.getlength(word) <= width:
        return [word]
    pieces, piece = [], ""
    for letter in word:
        if piece and font.getlength(piece + letter) > width:
            pieces.append(piece)
            piece = ""
        piece += letter
    return [*pieces, piece]
