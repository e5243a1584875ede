"""Parser of ABC notation for a melody with chords: one voice, repeats, tuplets, ties and keys.

Unsupported notation raises `UnusableInput` instead of being ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.audio.music import theory
from sixfold.engines.audio.music.score import Note
from sixfold.engines.audio.music.theory import OCTAVE, Chord, MusicalKey

MAX_CHARS = 20_000
_MAX_NOTES = 4000
_MAX_BEATS = 8000
_MAX_DIGITS = 4
_FIELD = re.compile(r"\s*+([A-Za-z]):([^%]*+)(?:%.*)?")
_INLINE = re.compile(r"\[([A-Za-z]):([^\]]*)\]")
_TOKEN = re.compile(
    r"""(?P<space>[\s\\`]+|%[^\n]*|![^!\n]*!|\{[^}]*\}|[~.HLMOPSTuv](?=[A-Ga-g^_=\[]))
      | "(?P<chord>[^"\n]*)"
      | (?P<bar>\[\||\|\]|:\|+:|::|:\||\|:|\|+)(?P<ending>\s*\[?[12](?![\d/]))?
      | \[(?P<only>[12])
      | \((?P<tuplet>[2-9])(?::\d*)*
      | \[(?P<stack>[^\]:]+)\](?P<stacked>[\d/]*)
      | (?P<sign>\^\^|\^|__|_|=)?(?P<letter>[A-Ga-g])(?P<octave>[,']*)(?P<length>[\d/]*)
      | (?P<rest>[zxZ])(?P<rested>[\d/]*)
      | (?P<tie>-)
      | (?P<broken>>+|<+)
      | (?P<slur>[()])""",
    re.VERBOSE,
)
_NOTE = re.compile(r"(\^\^|\^|__|_|=)?([A-Ga-g])([,']*)([\d/]*)")
_LETTERS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_SIGNS = {"^": 1, "^^": 2, "_": -1, "__": -2, "=": 0}
_SHARPS, _FLATS = "FCGDAEB", "BEADGCF"
_MODES = {
    "maj": 0,
    "ion": 0,
    "dor": 2,
    "phr": 4,
    "lyd": 5,
    "mix": 7,
    "min": 9,
    "m": 9,
    "aeo": 9,
    "loc": 11,
    "": 0,
}
_FIFTHS = {0: 0, 7: 1, 2: 2, 9: 3, 4: 4, 11: 5, 6: 6, 5: -1, 10: -2, 3: -3, 8: -4, 1: -5}
_TUPLETS = {2: Fraction(3, 2), 3: Fraction(2, 3), 4: Fraction(3, 4), 6: Fraction(1, 3), 5: Fraction(2, 5)}
_SYMBOL = re.compile(
    r"([A-G])([#b♯♭]?)(maj7|maj9|m7b5|dim7|dim|m7|m9|m6|min|m|7|9|6|sus4|sus2|aug|\+)?(?:/.*)?"
)
_SYMBOLS = {
    "maj7": "maj7",
    "m7b5": "ø",
    "dim7": "°7",
    "dim": "°",
    "min": "m",
    "aug": "",
    "+": "",
    "maj9": "maj9",
}


class AbcScore(msgspec.Struct, frozen=True):
    """A melody from beat 0 on (a beat is a quarter note), its chords by bar, and the fields of its header."""

    notes: tuple[Note, ...]
    chords: Mapping[int, Chord]
    home: MusicalKey
    tempo: float | None
    beats: int
    bars: int


def parse(text: str) -> AbcScore:
    """Parse a score; raises `UnusableInput` for invalid or unsupported notation."""
    head, body = _split(text)
    meter = _meter(head.get("M", "4/4"))
    unit = _fraction(head["L"]) if "L" in head else Fraction(1, 16 if meter < Fraction(3, 4) else 8)
    home, signs = _key(head.get("K", "C"))
    reader = _AbcReader(unit * 4, signs, meter * 4)
    for token in _expand_repeats(_tokens(body)):
        reader.read(token)
    if not reader.notes:
        raise UnusableInput("abc must contain notes")
    beats = max(1, round(meter * 4))
    end = max(note.beat + note.beats for note in reader.notes)
    if end > _MAX_BEATS:
        raise UnusableInput(f"abc must last at most {_MAX_BEATS} quarter notes")
    chords = {int(beat // float(meter * 4)): chord for beat, chord in reversed(reader.chords)}
    return AbcScore(
        tuple(reader.notes),
        chords,
        home,
        _tempo(head.get("Q")),
        beats,
        max(1, -(-round(end * 8) // (beats * 8))),
    )


def _split(text: str) -> tuple[dict[str, str], str]:
    """Return the header's fields by letter, and the text of the tune."""
    if len(text) > MAX_CHARS:
        raise UnusableInput(f"abc must be at most {MAX_CHARS} characters (got {len(text)})")
    head: dict[str, str] = {}
    body: list[str] = []
    for line in text.splitlines():
        field = _FIELD.fullmatch(line)
        if field and (field[1] != "K" or "K" not in head):
            if field[1] not in "wWV":
                head.setdefault(field[1], field[2].strip())
        elif not line.lstrip().startswith("%"):
            body.append(_INLINE.sub(" ", line))
    return head, "\n".join(body)


def _meter(text: str) -> Fraction:
    meters = {"C": Fraction(1), "C|": Fraction(1), "none": Fraction(1)}
    return meters.get(text.strip()) or _fraction(text)


def _fraction(text: str) -> Fraction:
    match = re.fullmatch(r"\s*(\d{1,2})\s*/\s*(\d{1,2})\s*", text)
    if not match or not int(match[2]) or not int(match[1]):
        raise UnusableInput(f"L and M in abc must be fractions such as 1/8 or 3/4 (got `{text[:20]}`)")
    return Fraction(int(match[1]), int(match[2]))


def _tempo(text: str | None) -> float | None:
    """Return the tempo in quarter notes per minute, or None if the text does not contain a tempo."""
    match = re.search(r"(?:(\d{1,4})/(\d{1,4})\s*=\s*)?(\d{2,3})\s*$", text or "")
    if not match:
        return None
    unit = Fraction(int(match[1]), max(1, int(match[2]))) if match[1] else Fraction(1, 4)
    return float(min(400, max(20, int(match[3]) * unit * 4)))


def _key(text: str) -> tuple[MusicalKey, dict[str, int]]:
    """Return the key, and by letter the notes that it sharpens (1) or flattens (-1)."""
    match = re.match(r"\s*([A-G])\s*([#b]?)\s*([A-Za-z]*)", text)
    if not match:
        return MusicalKey(0), {}
    tonic = (_LETTERS[match[1]] + {"#": 1, "b": -1}.get(match[2], 0)) % OCTAVE
    mode = match[3].lower()
    above = _MODES.get(mode[:3], _MODES.get(mode[:1], 0))
    major = (tonic - above) % OCTAVE
    fifths = _FIFTHS[major]
    if (match[2] == "#" and fifths < 0) or (match[2] == "b" and fifths > 0):
        fifths += 12 if fifths < 0 else -12
    order = _SHARPS[: max(0, fifths)] if fifths > 0 else _FLATS[: max(0, -fifths)]
    return MusicalKey(tonic, minor=above in (2, 4, 9, 11)), dict.fromkeys(order, 1 if fifths > 0 else -1)


def _tokens(body: str) -> list[re.Match[str]]:
    tokens: list[re.Match[str]] = []
    position = 0
    while position < len(body):
        token = _TOKEN.match(body, position)
        if token is None:
            raise UnusableInput(f"abc is invalid at `{body[position : position + 12].strip()}`")
        tokens.append(token)
        position = token.end()
    return tokens


def _expand_repeats(tokens: list[re.Match[str]]) -> list[re.Match[str]]:
    """Return the tokens in playing order, with repeats written out with their endings."""
    out: list[re.Match[str]] = []
    begin, first_ending = 0, None
    for at, token in enumerate(tokens):
        bar = token["bar"] or ""
        ending = (token["ending"] or token["only"] or "").strip(" [")
        if bar.startswith(":") or bar == "::":
            out += tokens[begin : at + 1]
            out += tokens[begin : first_ending if first_ending is not None else at]
            begin, first_ending = at + 1, None
        elif bar in ("|:", "[|"):
            out += tokens[begin : at + 1]
            begin, first_ending = at + 1, None
        elif ending == "1":
            first_ending = at
    return [*out, *tokens[begin:]]


class _AbcReader:
    """The state of parsing: the beat, accidentals of the bar, ties, tuplets and broken rhythms."""

    def __init__(self, unit: Fraction, signs: Mapping[str, int], bar: Fraction) -> None:
        self.notes: list[Note] = []
        self.chords: list[tuple[float, Chord]] = []
        self._unit, self._signs, self._bar = unit, signs, bar
        self._beat = Fraction(0)
        self._accidentals: dict[str, int] = {}
        self._tied = False
        self._tuplet: tuple[Fraction, int] = (Fraction(1), 0)
        self._carry = Fraction(1)
        self._last: tuple[int, Fraction] = (0, Fraction(0))

    def read(self, token: re.Match[str]) -> None:
        kind = token.lastgroup or ""
        if token["letter"] or token["stack"] or token["rest"]:
            self._notes(token)
        elif token["bar"]:
            self._accidentals = {}
        elif token["tuplet"]:
            count = int(token["tuplet"])
            self._tuplet = (_TUPLETS.get(count, Fraction(2, count)), count)
        elif token["chord"] is not None:
            self._symbol(token["chord"])
        elif kind == "tie":
            self._tied = True
        elif kind == "broken":
            self._dot(token["broken"])

    def _notes(self, token: re.Match[str]) -> None:
        length = self._length(token["length"] or token["stacked"] or token["rested"] or "")
        if token["rest"] == "Z":
            length = self._bar
        pitches: list[int] = []
        if token["letter"]:
            pitches = [self._pitch(token["sign"], token["letter"], token["octave"])]
        elif token["stack"]:
            pitches = [self._pitch(*note.groups()[:3]) for note in _NOTE.finditer(token["stack"])]
        first = len(self.notes)
        for pitch in pitches:
            if self._tied and self._extend_tied(pitch, length):
                continue
            self.notes.append(Note(float(self._beat), float(length) * 0.95, pitch, 0.72, "lead"))
        self._tied = False
        self._last = (first, length)
        self._beat += length
        if len(self.notes) > _MAX_NOTES:
            raise UnusableInput(f"abc must have at most {_MAX_NOTES} notes")

    def _extend_tied(self, pitch: int, length: Fraction) -> bool:
        for at in range(len(self.notes) - 1, max(-1, len(self.notes) - 8), -1):
            note = self.notes[at]
            if note.pitch == pitch:
                until = float(self._beat + length)
                self.notes[at] = Note(
                    note.beat, until - note.beat - 0.05 * float(length), pitch, note.loudness, "lead"
                )
                return True
        return False

    def _length(self, text: str) -> Fraction:
        number, *slashes = text.split("/")
        if max(map(len, (number, *slashes))) > _MAX_DIGITS:
            raise UnusableInput(f"abc lengths must have at most {_MAX_DIGITS} digits (got `{text[:20]}`)")
        length = self._unit * int(number or 1)
        for below in slashes:
            length /= int(below or 2) or 1
        share, remaining = self._tuplet
        if remaining:
            length *= share
            self._tuplet = (share, remaining - 1)
        length *= self._carry
        self._carry = Fraction(1)
        return length

    def _pitch(self, sign: str | None, letter: str, octave: str) -> int:
        if sign:
            self._accidentals[letter.upper()] = _SIGNS[sign]
        shift = self._accidentals.get(letter.upper(), self._signs.get(letter.upper(), 0))
        height = 72 if letter.islower() else 60
        height += OCTAVE * (octave.count("'") - octave.count(","))
        return max(21, min(108, height + _LETTERS[letter.upper()] + shift))

    def _dot(self, text: str) -> None:
        """Lengthen the first note of `a>b` by half and shorten the second one by as much."""
        first, length = self._last
        change = length * (1 - Fraction(1, 2 ** len(text))) if length else Fraction(0)
        change = change if text[0] == ">" else -change
        for at in range(first, len(self.notes)):
            note = self.notes[at]
            self.notes[at] = Note(
                note.beat, (float(length) + float(change)) * 0.95, note.pitch, note.loudness, "lead"
            )
        self._beat += change
        if length:
            self._carry = (length - change) / length

    def _symbol(self, text: str) -> None:
        match = _SYMBOL.fullmatch(text.strip())
        if match:
            root = (_LETTERS[match[1]] + {"#": 1, "♯": 1, "b": -1, "♭": -1}.get(match[2], 0)) % OCTAVE
            kind = _SYMBOLS.get(match[3] or "", match[3] or "")
            self.chords.append((float(self._beat), Chord(root, theory.QUALITIES[kind], root)))
