"""Rendering of shapes and labels: pictures of data as WebP images, and the pictures of shares as JPEG."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image, ImageDraw, ImageOps

from sixfold.core.media.drawings import CARD_HEIGHT, CARD_WIDTH, Drawing, ShareCard
from sixfold.engines.thumbnails import image as thumbnails
from sixfold.engines.video.timeline import fonts

# The width of pictures of data, and the maximum size in bytes with the qualities tried in this order.
_WIDTH, _MAX_BYTES, _QUALITIES = 320, 40_000, (85, 60, 35, 15)
# Images are drawn at this multiple of their size and reduced.
_OVERSAMPLING = 2
_PAPER, _INK, _QUIET, _LINE = "#fbfaf8", "#22201d", "#6b665e", "#dcd8d1"
_BRAND = ("#c8553d", "#d9a441", "#5fae8a", "#4f8fd6", "#6a7fd0", "#b878c8")
_MARGIN = 64
_PICTURE_SIDE = CARD_HEIGHT
_DRAWING_TOP = 250
_TITLE_SIZE, _TEXT_SIZE, _KIND_SIZE, _LEADING = 54.0, 29.0, 26.0, 1.28
_TITLE_LINES, _TEXT_LINES = 3, 7
_MAX_CHARS = 900
_CARD_QUALITY = 85


def render(drawing: Drawing) -> bytes:
    """Return the picture of data as WebP with a transparent background, 320 pixels wide."""
    image = _drawn(drawing, _WIDTH, round(_WIDTH * drawing.height / drawing.width))
    return thumbnails.encode(image, _MAX_BYTES, _QUALITIES)


def render_card(card: ShareCard, picture: bytes) -> bytes:
    """Return the picture of a share as JPEG; `picture` is an image to show, or empty."""
    image = Image.new("RGB", (CARD_WIDTH, CARD_HEIGHT), _PAPER)
    width = CARD_WIDTH - 2 * _MARGIN
    drawing = card.drawing
    is_wide = drawing is not None and drawing.width > drawing.height
    if picture or (drawing is not None and not is_wide):
        shown = _fitted(picture) if picture else _square(drawing)
        image.paste(shown, (CARD_WIDTH - _PICTURE_SIDE, 0))
        width -= _PICTURE_SIDE
    stripe = CARD_WIDTH // len(_BRAND)
    for at, color in enumerate(_BRAND):
        image.paste(color, (at * stripe, 0, (at + 1) * stripe, 10))
    y = _write(image, [card.kind], (_MARGIN, 48), _KIND_SIZE, _QUIET)
    lines = _wrapped(card.title, _TITLE_SIZE, width, 1 if is_wide else _TITLE_LINES)
    y = _write(image, lines, (_MARGIN, y + 14), _TITLE_SIZE, _INK)
    room = 1 if is_wide else min(_TEXT_LINES, int((CARD_HEIGHT - y - 90) / (_TEXT_SIZE * _LEADING)))
    _write(image, _wrapped(card.text, _TEXT_SIZE, width, room), (_MARGIN, y + 18), _TEXT_SIZE, _QUIET)
    if drawing is not None and is_wide:
        _paste_drawing(image, drawing)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=_CARD_QUALITY, subsampling=0)
    return content.getvalue()


def _square(drawing: Any) -> Image.Image:
    """Return a square drawing on a white background."""
    drawn = _drawn(drawing, _PICTURE_SIDE, _PICTURE_SIDE)
    ground = Image.new("RGBA", drawn.size, "#ffffff")
    return Image.alpha_composite(ground, drawn).convert("RGB")


def _fitted(picture: bytes) -> Image.Image:
    """Return the picture as a square, on the background of the card if it is transparent."""
    with Image.open(io.BytesIO(picture)) as opened:
        pixels = opened.convert("RGBA")
    square = ImageOps.fit(pixels, (_PICTURE_SIDE, _PICTURE_SIDE), Image.Resampling.LANCZOS)
    ground = Image.new("RGBA", square.size, "#ffffff")
    return Image.alpha_composite(ground, square).convert("RGB")


def _paste_drawing(image: Image.Image, drawing: Drawing) -> None:
    width, height = CARD_WIDTH - _MARGIN, CARD_HEIGHT - _DRAWING_TOP - _MARGIN // 2
    scale = min(width / drawing.width, height / drawing.height)
    size = round(drawing.width * scale), round(drawing.height * scale)
    drawn = _drawn(drawing, *size)
    image.paste(drawn, ((CARD_WIDTH - size[0]) // 2, _DRAWING_TOP + (height - size[1]) // 2), drawn)


def _drawn(drawing: Drawing, width: int, height: int) -> Image.Image:
    scale = width * _OVERSAMPLING / drawing.width
    image = Image.new("RGBA", (width * _OVERSAMPLING, height * _OVERSAMPLING), (128, 128, 128, 0))
    canvas = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        points = [(x * scale, y * scale) for x, y in shape.points]
        if shape.width:
            canvas.line(points, shape.color, max(1, round(shape.width * scale)), joint="curve")
        elif len(points) > 2:
            canvas.polygon(points, shape.color)
    for label in drawing.labels:
        # A text with a line break cannot be drawn in all scripts.
        text = " ".join(fonts.visible(label.text[:_MAX_CHARS]).split())
        _write(image, [text], (label.x * scale, label.y * scale), label.size * scale, label.color)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def _write(image: Image.Image, lines: list[str], at: tuple[float, float], size: float, color: str) -> float:
    """Write lines from the top left corner `at` and return the position below them."""
    x, y = at
    for line in lines:
        mask = Image.new("L", image.size, 0)
        fonts.for_text(line, size).draw(ImageDraw.Draw(mask), x, y, line)
        image.paste(color, mask=mask)
        y += size * _LEADING
    return y


def _wrapped(text: str, size: float, width: float, most: int) -> list[str]:
    """Return the first lines of a text, each at most `width` wide; the last one ends with an ellipsis."""
    words = fonts.visible(text[:_MAX_CHARS]).split()
    font: Any = fonts.for_text(text[:_MAX_CHARS] + "…", size)
    lines: list[str] = []
    while words and len(lines) < most:
        line = words.pop(0)
        while words and font.getlength(f"{line} {words[0]}") <= width:
            line = f"{line} {words.pop(0)}"
        end = _fitting(font, line, width)
        if end < len(line):
            words.insert(0, line[end:])
        lines.append(line[:end])
    if words and lines:
        last = lines[-1][: _fitting(font, lines[-1], width - font.getlength("…"))]
        lines[-1] = f"{last.rstrip()}…"
    return lines


def _fitting(font: Any, line: str, width: float) -> int:
    """Return the number of characters of a line that fit in `width`, at least 1, by binary search.

    A text of many fonts takes a step for each change of font, each time that it is measured.
    """
    if font.getlength(line) <= width:
        return len(line)
    low, high = 1, max(1, len(line) - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if font.getlength(line[:middle]) <= width:
            low = middle
        else:
            high = middle - 1
    return low
