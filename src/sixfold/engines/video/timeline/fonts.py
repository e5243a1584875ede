"""Fonts of text clips: Pillow's font, the fonts installed on this machine and those of the web pages.

Characters are looked up in a font's character map, which is read once. Fonts that consist only of bitmaps,
such as color emoji, are excluded because they cannot be drawn at every size.
"""

from __future__ import annotations

import bisect
import io
import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO
from unicodedata import category

import msgspec
import numpy as np
from PIL import ImageFont

_FOLDERS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
)
_STYLED = ("Bold", "Italic", "Oblique", "Mono", "Light", "Thin", "Condensed", "Serif", "Black", "LastResort")
# Fonts of many scripts, in the order of preference if they contain equally many of the characters.
_PREFERRED = ("DejaVuSans.", "NotoSans-", "LiberationSans-", "NotoSansCJK", "SourceHanSans", "wqy", "ipag")
# The web pages' fonts for European letters, and the code points to look for in them.
_BUNDLED = ("source-serif-4-latin.woff2", "source-serif-4-latin-ext.woff2")
_EUROPEAN = (
    range(0x20, 0x7F),
    range(0xA1, 0x250),
    range(0x1E00, 0x1F00),
    range(0x2010, 0x2040),
    range(0x20A0, 0x20C1),
)
# A character that no font contains, so its glyph is the one drawn for missing characters.
_NO_CHARACTER = "\U0010fffe"
_MAX_FILES, _MAX_FONTS = 20_000, 400
_MAX_TABLES, _MAX_CMAP_BYTES = 64, 4 * 2**20
_OUTLINES = frozenset({b"glyf", b"CFF ", b"CFF2"})
# Selectors of a glyph's variant, which are not drawn.
_SELECTORS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))

Range = tuple[int, int]


class Font(msgspec.Struct, frozen=True):
    """A font file, or Pillow's font if `path` is None, and the code points that it contains."""

    path: str | None
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def has(self, letter: str) -> bool:
        at = bisect.bisect_right(self.starts, ord(letter)) - 1
        return at >= 0 and ord(letter) <= self.ends[at]

    def count(self, letters: Iterable[str]) -> int:
        """Return the number of the characters that the font contains."""
        return sum(map(self.has, letters))

    def at(self, size: float) -> Any:
        return ImageFont.load_default(size) if self.path is None else ImageFont.truetype(self.path, size)


class TextFont:
    """The fonts of a text clip at a size: each character is drawn in the first font that contains it."""

    def __init__(self, fonts: tuple[Font, ...], size: float) -> None:
        self._fonts = fonts
        self._sized = [font.at(size) for font in fonts]
        self._chosen: dict[str, int] = {}
        # Each prefix of a line with many runs has mostly the same runs.
        self._lengths: dict[tuple[int, str], float] = {}

    def font_variant(self, size: float) -> TextFont:
        """Return the same fonts at another size."""
        return TextFont(self._fonts, size)

    def getmetrics(self) -> tuple[int, int]:
        """Return the ascent and the descent of the first font."""
        return self._sized[0].getmetrics()

    def getlength(self, text: str) -> float:
        return sum(self._length(at, run) for at, run in self._runs(text))

    def draw(self, canvas: Any, x: float, y: float, line: str) -> None:
        """Draw a line at full opacity; `y` is the top of the first font's ascent."""
        baseline = y + self.getmetrics()[0]
        for at, run in self._runs(line):
            canvas.text((x, baseline), run, font=self._sized[at], fill=255, anchor="ls")
            x += self._length(at, run)

    def _length(self, at: int, run: str) -> float:
        if (at, run) not in self._lengths:
            self._lengths[at, run] = self._sized[at].getlength(run)
        return self._lengths[at, run]

    def _runs(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield runs of characters with their font's index; a space or mark continues the run before it."""
        run, current = "", 0
        for letter in text:
            at = self._at(letter)
            joins = letter.isspace() or category(letter).startswith("M")
            if run and at != current and not (joins and self._fonts[current].has(letter)):
                yield current, run
                run = ""
            if not run:
                current = at
            run += letter
        if run:
            yield current, run

    def _at(self, letter: str) -> int:
        if letter not in self._chosen:
            having = (at for at, font in enumerate(self._fonts) if font.has(letter))
            self._chosen[letter] = next(having, 0)
        return self._chosen[letter]


def visible(text: str) -> str:
    """Remove control characters, format characters and selectors of variants, which have no glyph."""
    return "".join(letter for letter in text if letter.isspace() or not _is_formatting(letter))


def missing_characters(text: str) -> tuple[str, ...]:
    """Return the visible characters of `text` that are missing from all fonts, in order of appearance."""
    lacking = [letter for letter in _letters(text) if not _default().has(letter)]
    return tuple(letter for letter in lacking if not any(font.has(letter) for font in _fallbacks()))


def for_text(text: str, size: float) -> TextFont:
    """Return a font for all characters of `text`, preferably Pillow's, or else a combination of few fonts.

    The font with the most characters comes first; each further font contains most of those that remain.
    """
    candidates, previous, fonts = (_default(), *_fallbacks()), _letters(text), list[Font]()
    while previous:
        best = max(candidates, key=lambda font: font.count(previous))
        remaining = tuple(letter for letter in previous if not best.has(letter))
        if remaining == previous:
            break
        fonts.append(best)
        previous = remaining
    return TextFont(tuple(fonts) or (_default(),), size)


def _letters(text: str) -> tuple[str, ...]:
    """Return the distinct characters of `text` that need a glyph, in order of appearance."""
    return tuple(dict.fromkeys(letter for letter in visible(text) if not letter.isspace()))


def _is_formatting(letter: str) -> bool:
    return category(letter) in ("Cc", "Cf") or any(ord(letter) in selectors for selectors in _SELECTORS)


@cache
def _default() -> Font:
    font: Any = ImageFont.load_default(20.0)
    return _font(None, character_ranges(io.BytesIO(font.font_bytes)))


def _fallbacks() -> tuple[Font, ...]:
    return (*installed(), *_bundled())


@cache
def _bundled() -> tuple[Font, ...]:
    """Return the fonts that come with Sixfold, whose compressed character maps are probed glyph by glyph."""
    folder = resources.files("sixfold") / "ui" / "static" / "fonts"
    fonts: list[Font] = []
    for name in _BUNDLED:
        path = str(folder / name)
        try:
            font: Any = ImageFont.truetype(path, 12, layout_engine=ImageFont.Layout.BASIC)
        except OSError:
            continue
        blank = bytes(font.getmask(_NO_CHARACTER))
        codes = itertools.chain.from_iterable(_EUROPEAN)
        present = [code for code in codes if bytes(font.getmask(chr(code))) != blank]
        fonts.append(_font(path, _joined(np.array(present))))
    return tuple(fonts)


@cache
def installed() -> tuple[Font, ...]:
    """Return the regular fonts of this machine that have outlines, preferred fonts first."""
    fonts: list[Font] = []
    for path in _font_files():
        try:
            with Path(path).open("rb") as file:
                ranges = character_ranges(file)
            if ranges:
                ImageFont.truetype(path, 20)
                fonts.append(_font(path, ranges))
        except (OSError, ValueError):
            continue
    return tuple(fonts)


def _font_files() -> list[str]:
    walks = itertools.chain.from_iterable(os.walk(Path(folder).expanduser()) for folder in _FOLDERS)
    names = (f"{folder}/{name}" for folder, _, files in walks for name in files)
    names = itertools.islice(names, _MAX_FILES)
    names = (name for name in names if name.lower().endswith((".ttf", ".otf", ".ttc", ".otc")))
    return sorted((name for name in names if not any(word in name for word in _STYLED)), key=_rank)[
        :_MAX_FONTS
    ]


def _rank(path: str) -> tuple[int, str]:
    name = path.rpartition("/")[2]
    ranks = (at for at, start in enumerate(_PREFERRED) if name.startswith(start))
    return next(ranks, len(_PREFERRED)), path


def _font(path: str | None, ranges: Collection[Range]) -> Font:
    ordered = sorted(ranges)
    return Font(path, tuple(start for start, _ in ordered), tuple(end for _, end in ordered))


def character_ranges(file: BinaryIO) -> list[Range]:
    """Return the code point ranges with a glyph in a font, or in the first font of a collection.

    The list is empty for a font without outlines. Raises `ValueError` if the file is not a font that can be
    read.
    """
    table = _character_map(file)
    if not table:
        return []
    count = _number(table, 2, 2)
    maps = {_number(table, 4 + 8 * at + 4, 4) for at in range(min(count, _MAX_TABLES))}
    by_format = {_number(table, offset, 2): offset for offset in maps}
    if 12 in by_format:
        return _groups(table, by_format[12])
    return _segments(table, by_format[4]) if 4 in by_format else []


def _character_map(file: BinaryIO) -> bytes:
    """Return the table `cmap`, or empty bytes if the font contains no outlines."""
    head = file.read(16)
    start = _number(head, 12, 4) if head[:4] == b"ttcf" else 0
    file.seek(start)
    count = min(_number(file.read(12), 4, 2), _MAX_TABLES)
    rows = file.read(16 * count)
    tables = {rows[at : at + 4]: rows[at + 8 : at + 16] for at in range(0, 16 * count, 16)}
    if b"cmap" not in tables or not _OUTLINES & tables.keys():
        return b""
    file.seek(_number(tables[b"cmap"], 0, 4))
    return file.read(min(_number(tables[b"cmap"], 4, 4), _MAX_CMAP_BYTES))


def _groups(table: bytes, at: int) -> list[Range]:
    """Return the code point ranges of a character map of format 12."""
    count = _number(table, at + 12, 4)
    rows = np.frombuffer(table[at + 16 : at + 16 + 12 * count], ">u4").reshape(-1, 3).tolist()
    return [(start + (glyph == 0), end) for start, end, glyph in rows if start + (glyph == 0) <= end]


def _segments(table: bytes, at: int) -> list[Range]:
    """Return the code point ranges of a character map of format 4."""
    size = _number(table, at + 6, 2)
    words = np.frombuffer(table[at + 14 : at + 14 + (len(table) - at - 14) // 2 * 2], ">u2").astype(np.int64)
    half = size // 2
    ends, starts, deltas, offsets = (words[k * half + (k > 0) :][:half] for k in range(4))
    ranges: list[Range] = []
    for segment, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        codes = np.arange(start, end + 1)
        glyphs = codes
        if offsets[segment]:
            places = 3 * half + 1 + segment + int(offsets[segment]) // 2 + codes - start
            found = words[np.clip(places, 0, len(words) - 1)]
            glyphs = np.where((places < len(words)) & (found != 0), found, -int(deltas[segment]))
        present = codes[((glyphs + int(deltas[segment])) & 0xFFFF) != 0]
        ranges += _joined(present[present != 0xFFFF])
    return ranges


def _joined(codes: Any) -> list[Range]:
    if not len(codes):
        return []
    parts = np.split(codes, np.flatnonzero(np.diff(codes) != 1) + 1)
    return [(int(part[0]), int(part[-1])) for part in parts]


def _number(data: bytes, at: int, length: int) -> int:
    if at + length > len(data):
        raise ValueError("the font ends before its character map")
    return int.from_bytes(data[at : at + length], "big")
