"""Measure the word errors of the embedded speech recognizer on the embedded English voices.

.venv/bin/python -m bench stt_accuracy [EARS_SENTENCES=N]

Three variants: the model of PocketSphinx's package, the model adapted to the voices, and the engine's
choice between the two. None of the sentences was used for the adaptation.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.reporting import Row
from sixfold.core.catalog.engines import Task
from sixfold.engines.speech import engine as synthesiser
from sixfold.engines.speech import files, synthesis, transcription
from sixfold.engines.speech.sphinx import SphinxEngine

Wave = NDArray[np.float32]

TITLE = "Hearing"
VOICES = ("ava", "ben", "chloe", "dan", "ella", "finn", "grace", "henry", "isla", "jack")
SENTENCES = """
Good morning, I would like a cup of coffee please.
The train to the city leaves at half past nine.
Can you tell me where the nearest station is?
We are going to have dinner with my sister tonight.
It rained all day, so the children stayed in the house.
Please close the window before you go to bed.
He found an old letter in the back of the drawer.
The meeting was moved to Thursday afternoon.
I have never seen so many stars in the sky.
Turn left at the corner and walk straight ahead.
She bought a red coat and a pair of black shoes.
My brother works in a small hospital near the river.
The doctor said that I should drink more water.
What time does the library open on Saturday?
They painted the kitchen yellow last summer.
There is some bread and cheese on the table.
The dog ran across the garden and jumped over the wall.
I forgot to bring my umbrella to the office.
We need two more chairs for the people who are coming.
Her grandmother told us a story about the sea.
The price of the ticket has gone up again this year.
Would you mind speaking a little more slowly?
A cold wind was blowing from the north.
You can leave your bag in the room upstairs.
The teacher wrote three questions on the board.
I am looking for a present for my father.
Most of the shops are closed on Sunday.
The boat turned around and came back to the harbor.
He has been learning to play the piano since March.
Let us meet in front of the museum at noon.
The baby is asleep, so please be quiet.
Our neighbors are building a new fence.
This road is closed because of the snow.
I will call you as soon as I get home.
The soup needs a little more salt and pepper.
Nobody knew the answer to the last question.
She always reads the newspaper at breakfast.
The plane will land in about twenty minutes.
Thank you very much for your help yesterday.
It was a long journey, but we enjoyed every day of it.
""".strip().splitlines()
_PEAK = 0.7


class RunContext:
    """Run context that ignores progress and logs."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def progress(self, _fraction: float) -> None:
        """Ignore the progress."""

    def log(self, _line: str) -> None:
        """Ignore the line."""


def words(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]", " ", " ".join(text.split()).lower().replace("-", " ")).split()


def edit_distance(right: list[str], heard: list[str]) -> int:
    """Return the smallest number of words to replace, delete or insert (Levenshtein)."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(right, 1):
        before, row[0] = row[:], number
        for place, other in enumerate(heard, 1):
            row[place] = min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (word != other))
    return row[-1]


@cache
def synthesize(sentence: str, voice: str) -> Wave:
    """Synthesize a sentence with a voice, and return its samples as read from the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = _file(sentence, voice, Path(folder))
        wave = files.read(path, transcription.RATE)
    return wave * np.float32(_PEAK / np.abs(wave).max())


def _file(sentence: str, voice: str, folder: Path) -> Path:
    context: Any = RunContext(folder)
    order = synthesis.parse(Task("t", "tts", {"text": sentence, "voice": voice, "format": "wav"}))
    result = synthesis.record(order, lambda text: synthesiser.speak(text, order), 22_050, context)
    return Path(str(result.path))


def share(listener: Any, sentences: Sequence[str], voice: str) -> float:
    """Return the word error rate of a voice in percent."""
    total = errors = 0
    for sentence in sentences:
        response = listener(sentence, voice)
        total += len(words(sentence))
        errors += edit_distance(words(sentence), words(response))
    return 100 * errors / total


def rows() -> list[Row]:
    sentences = SENTENCES[: int(os.environ.get("EARS_SENTENCES", len(SENTENCES)))]
    results: list[Row] = []
    listening = SphinxEngine()
    for name, listener in (
        ("the package's model", lambda *speech: listening.original.decode(synthesize(*speech), 0).text),
        (
            "the model moved to our voices",
            lambda *speech: listening.adapted.decode(synthesize(*speech), 0).text,
        ),
        ("the engine", lambda *speech: _engine(listening, *speech)),
    ):
        began = time.process_time()
        shares = {voice: share(listener, sentences, voice) for voice in VOICES}
        took = time.process_time() - began
        length = (
            sum(synthesize(sentence, voice).size for sentence in sentences for voice in VOICES)
            / transcription.RATE
        )
        response = ", ".join(f"{voice} {value:.0f}" for voice, value in shares.items())
        note = f"{response}; {took / length:.2f} s of processor a second"
        results.append(Row(f"{name}: words wrong", sum(shares.values()) / len(shares), "%", note=note))
    return results


def _engine(listening: SphinxEngine, sentence: str, voice: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = _file(sentence, voice, Path(folder))
        context: Any = RunContext(Path(folder))
        return str(listening.run(Task("t", "stt", {}, {"audio_url": path}), context).data["text"])
