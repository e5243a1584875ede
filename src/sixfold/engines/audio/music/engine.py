"""Engine of `music-diffusion`: instrumental music from a prompt, of exact length, key and tempo."""

from __future__ import annotations

from collections.abc import Sequence

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.music import arrangement, genres, lyrics, render, theory
from sixfold.engines.audio.music.arrangement import ArrangedSong, SongRequest, SongSection

# Progress after composition and after rendering.
_COMPOSED, _RENDERED = 0.1, 0.85
NO_VOICE = (
    "no voice sings here: the lyrics shape sections and melody, and an instrument plays what would be sung "
    "(singing needs a model with weights)"
)


class MusicEngine:
    """Generates instrumental music; the same inputs result in the same bytes."""

    name = "arranger"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return one piece of the requested duration."""
        inputs = task.inputs
        request = SongRequest(
            band=genres.band(str(inputs["prompt"])),
            home=theory.key(str(inputs["key"])),
            tempo=float(inputs["bpm"]),
            seed=int(inputs["seed"]),
            candidates=int(inputs["steps"]),
        )
        seconds = float(inputs["duration"])
        stanzas = lyrics.parse(str(inputs.get("lyrics") or ""))
        if stanzas:
            context.log(NO_VOICE)
        parts = arrangement.sections(bars(request, seconds), stanzas)
        signal = render_song(request, parts, seconds, context)
        words = genres.words(str(inputs["prompt"]))
        return Result((files.write(signal, "mp3", context.scratch / "music.mp3"),), words=words)


def bars(request: SongRequest, seconds: float) -> int:
    """Return the number of bars that fill a duration."""
    bar = request.band.genre.beats * 60 / request.tempo
    return max(1, -(-round(seconds * 1000) // round(bar * 1000)))


def render_song(
    request: SongRequest, parts: Sequence[SongSection], seconds: float, context: Context
) -> render.Array:
    """Render the song as audio and log its structure."""
    song = arrangement.arrange(request, parts)
    context.log(f"{request.band.description}; {describe(song)}")
    context.progress(_COMPOSED)

    def progress(fraction: float) -> None:
        context.progress(_COMPOSED + (_RENDERED - _COMPOSED) * fraction)

    signal = render.render(song, request, seconds, progress)
    context.progress(_RENDERED)
    return signal


def describe(song: ArrangedSong) -> str:
    """Return a song's sections as a string, such as `verse 8, chorus 8 bars`."""
    return ", ".join(f"{section.name} {section.bars}" for section in song.sections) + " bars"
