"""Keys, scales and chords as pitch numbers."""

from __future__ import annotations

import re

import msgspec

from sixfold.core.catalog.engines import UnusableInput

OCTAVE = 12
_LETTERS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_SIGNS = {"#": 1, "♯": 1, "b": -1, "♭": -1, "": 0}
_KEY = re.compile(
    r"\s*([A-Ga-g])\s*(#|♯|b|♭|-?sharp|-?flat)?[\s_-]*(major|maj|minor|min|m|M)?\s*", re.IGNORECASE
)
MAJOR = (0, 2, 4, 5, 7, 9, 11)
MINOR = (0, 2, 3, 5, 7, 8, 10)
# The tones of a chord in semitones above its root, by the suffix of its numeral.
QUALITIES = {
    "": (0, 4, 7),
    "m": (0, 3, 7),
    "°": (0, 3, 6),
    "7": (0, 4, 7, 10),
    "maj7": (0, 4, 7, 11),
    "m7": (0, 3, 7, 10),
    "ø": (0, 3, 6, 10),
    "°7": (0, 3, 6, 9),
    "6": (0, 4, 7, 9),
    "m6": (0, 3, 7, 9),
    "9": (0, 4, 7, 10, 14),
    "maj9": (0, 4, 7, 11, 14),
    "m9": (0, 3, 7, 10, 14),
    "13": (0, 4, 10, 14, 21),
    "7b9": (0, 4, 7, 10, 13),
    "sus4": (0, 5, 7),
    "sus2": (0, 2, 7),
    "5": (0, 7),
}
_NUMERAL = re.compile(r"(b|#)?(VII|VI|IV|V|III|II|I|vii|vi|iv|v|iii|ii|i)(.*)")
_DEGREES = ("i", "ii", "iii", "iv", "v", "vi", "vii")


class MusicalKey(msgspec.Struct, frozen=True):
    """A tonic (0 is C) and a mode."""

    tonic: int
    minor: bool = False

    @property
    def scale(self) -> tuple[int, ...]:
        """The pitch classes of the key, from the tonic up."""
        return tuple((self.tonic + step) % OCTAVE for step in (MINOR if self.minor else MAJOR))

    def step(self, pitch: int, steps: int) -> int:
        """Return the pitch `steps` scale steps above `pitch`, which need not be in the scale."""
        ladder = self.ladder(pitch - 30, pitch + 30)
        near = min(range(len(ladder)), key=lambda at: (abs(ladder[at] - pitch), ladder[at]))
        return ladder[near + steps]

    def ladder(self, low: int, high: int) -> list[int]:
        within = set(self.scale)
        return [pitch for pitch in range(low, high + 1) if pitch % OCTAVE in within]


class Chord(msgspec.Struct, frozen=True):
    """A chord: its root (a pitch class), its tones in semitones above the root, and the bass pitch class."""

    root: int
    tones: tuple[int, ...]
    bass: int

    @property
    def classes(self) -> tuple[int, ...]:
        """The pitch classes of the chord, from the root up."""
        return tuple((self.root + tone) % OCTAVE for tone in self.tones)

    def has(self, pitch: int) -> bool:
        return pitch % OCTAVE in self.classes


def key(text: str) -> MusicalKey:
    """Parse a key such as `C Major`, `F# minor` or `Bbm`; raises `UnusableInput`."""
    match = _KEY.fullmatch(text)
    if match is None:
        raise UnusableInput(
            f"key must be a note and a mode such as `C Major` or `F# Minor` (got `{text[:40]}`)"
        )
    letter, sign, mode = match[1].upper(), (match[2] or "").lower().strip("-"), match[3] or ""
    raised = {"sharp": 1, "flat": -1}.get(sign, _SIGNS.get(sign, 0))
    minor = mode == "m" or mode.lower().startswith("min")
    return MusicalKey((_LETTERS[letter] + raised) % OCTAVE, minor)


def chord(numeral: str, home: MusicalKey) -> Chord:
    """Return the chord of a Roman numeral in a key: `ii7`, `V/vi`, `bVII`, `IV/3` (third in the bass)."""
    name, _, over = numeral.partition("/")
    if over and not over.isdigit():
        target = chord(over, home)
        return chord(name, MusicalKey(target.root, minor=3 in target.tones and name[0].islower()))
    match = _NUMERAL.fullmatch(name)
    if match is None:
        raise ValueError(f"{numeral} is not a chord")
    sign, degree, suffix = match[1], match[2], match[3]
    steps = MINOR if home.minor else MAJOR
    root = (home.tonic + steps[_DEGREES.index(degree.lower())] + {"b": -1, "#": 1}.get(sign, 0)) % OCTAVE
    quality = (
        f"m{suffix}" if degree.islower() and not suffix.startswith(("°", "ø", "m", "sus", "5")) else suffix
    )
    tones = QUALITIES[quality]
    bass = tones[(int(over) - 1) // 2] if over else 0
    return Chord(root, tones, (root + bass) % OCTAVE)


def chords(progression: str, home: MusicalKey) -> list[Chord]:
    """Return the chords of numerals separated by spaces."""
    return [chord(numeral, home) for numeral in progression.split()]


def nearest(pitch_class: int, pitch: float) -> int:
    base = round(pitch)
    return base + (pitch_class - base + 6) % OCTAVE - 6
