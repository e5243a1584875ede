"""The form of a piece (A A' B A, each section with its cadence) and its dynamics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from sixfold.engines.audio.music.score import Note

BAR = 4.0  # beats


class PieceSection(msgspec.Struct, frozen=True):
    """A section of the form: its name, first bar, length in bars, and cadence.

    `cadence` is "half" (on the dominant), "full" (on the tonic), "turn" (modulating) or "end".
    """

    name: str
    bar: int
    bars: int
    cadence: str


_FORM = (("A", "half"), ("A'", "full"), ("B", "turn"), ("A", "end"))


def form(bars: int) -> list[PieceSection]:
    """Return the sections of a piece; fewer than four bars have one or two phrases."""
    if bars < 2:
        return [PieceSection("A", 0, bars, "end")]
    if bars < 4:
        half = bars // 2
        return [PieceSection("A", 0, half, "half"), PieceSection("A", half, bars - half, "end")]
    section_bars, extra_bars = divmod(bars, 4)
    lengths = [section_bars + (1 if at >= 4 - extra_bars else 0) for at in range(4)]
    begins = [sum(lengths[:at]) for at in range(4)]
    return [
        PieceSection(name, begin, length, cadence)
        for (name, cadence), begin, length in zip(_FORM, begins, lengths, strict=True)
    ]


def apply_dynamics(
    notes: Sequence[Note], sections: Sequence[PieceSection], depth: float = 0.16
) -> list[Note]:
    """Return the notes in order of time, louder in the middle of each section and softer at its end."""
    swell: list[Note] = []
    ends = np.array([section.bar + section.bars for section in sections]) * BAR
    for note in notes:
        at = min(int(np.searchsorted(ends, note.beat + 1e-6, "right")), len(sections) - 1)
        section = sections[at]
        part = (note.beat - section.bar * BAR) / (section.bars * BAR)
        lift = math.sin(math.pi * min(1.0, max(0.0, part) * 0.9 + 0.08)) - 0.6
        if section.name == "B":
            lift += 0.2
        swell.append(replace(note, loudness=float(np.clip(note.loudness * (1 + depth * lift), 0.05, 1))))
    return sorted(swell, key=lambda note: (note.beat, note.pitch))
