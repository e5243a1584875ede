"""The engine of `music-diffusion`: a prompt's band plays for exactly so long, in key and in time."""

from __future__ import annotations

from collections.abc import Sequence

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.music import arrangement, genres, lyrics, render, theory
from sixfold.engines.audio.music.arrangement import ArrangedSong, SongRequest, SongSection

_COMPOSED, _PLAYED = 0.1, 0.85  # of the progress
NO_VOICE = (
    "no voice sings here: the lyrics shape sections and melody, and an instrument plays what would be sung "
    "(singing needs a model with weights)"
)


class MusicEngine:
    """Instrumental music from words; the same inputs give the same bytes."""

    name = "arranger"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """One piece."""
        inputs = task.inputs
        wish = SongRequest(
            band=genres.band(str(inputs["prompt"])),
            home=theory.key(str(inputs["key"])),
            tempo=float(inputs["bpm"]),
            seed=int(inputs["seed"]),
            candidates=int(inputs["steps"]),
        )
        seconds = float(inputs["duration"])
        stanzas = lyrics.read(str(inputs.get("lyrics") or ""))
        if stanzas:
            context.log(NO_VOICE)
        parts = arrangement.sections(bars(wish, seconds), stanzas)
        made = recorded(wish, parts, seconds, context)
        return Result((files.written(made, "mp3", context.scratch / "music.mp3"),))


def bars(wish: SongRequest, seconds: float) -> int:
    """How many bars it takes to fill so many seconds."""
    bar = wish.band.genre.beats * 60 / wish.tempo
    return max(1, -(-round(seconds * 1000) // round(bar * 1000)))


def recorded(
    wish: SongRequest, parts: Sequence[SongSection], seconds: float, context: Context
) -> render.Array:
    """The song as sound, its plan in the log."""
    song = arrangement.arranged(wish, parts)
    context.log(f"{wish.band.told}; {told(song)}")
    context.progress(_COMPOSED)

    def step(part: float) -> None:
        context.progress(_COMPOSED + (_PLAYED - _COMPOSED) * part)

    made = render.played(song, wish, seconds, step)
    context.progress(_PLAYED)
    return made


def told(song: ArrangedSong) -> str:
    """A song's sections in words: `verse 8, chorus 8`."""
    return ", ".join(f"{section.name} {section.bars}" for section in song.sections) + " bars"
