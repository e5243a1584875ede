"""Money, dates, times, fractions, units, telephone numbers and addresses, as voices say them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from sixfold.core.catalog.engines import Task
from sixfold.engines.speech import spoken_forms, synthesis
from tests.unit.engines import engine_runs

CORPUS = tomllib.loads(Path("tests/corpora/spoken.toml").read_text("utf-8"))
PAIRS = [
    (language, *pair)
    for language, parts in CORPUS.items()
    for part in ("seen", "unseen")
    for pair in parts[part]
]


@pytest.mark.parametrize(("language", "written", "message"), PAIRS)
def test_written_forms_are_spoken_as_words(language: str, written: str, message: str) -> None:
    assert spoken_forms.spoken(written, language) == message


@pytest.mark.parametrize(
    "text",
    [
        "Version 1.2.3 of 4/5/6",
        "and/or 99:99",
        "a.b",
        "No. 7",
        "chapter 12",
        "e.g. this",
        "0x1F",
        "13/45/2026",
        "Rooms 12-14, 1990-1999, 555-0199",
        "12 345 678 901 of 06 12",
        "ISBN 978-0-306-40615-7",
    ],
)
def test_text_without_written_forms_is_unchanged(text: str) -> None:
    assert spoken_forms.spoken(text, "en") == text


def test_text_in_other_languages_is_unchanged() -> None:
    assert spoken_forms.spoken("50 % za 3 €", "cs") == "50 % za 3 €"


def test_sentences_are_spoken_in_the_requested_language(tmp_path: Path) -> None:
    sentences: list[str] = []

    def speak(text: str) -> np.ndarray:
        sentences.append(text)
        return np.sin(np.arange(4000, dtype=np.float32) / 9)

    for language in ("de", ""):
        inputs = {"text": "Am 3.4.2026: 3,50 €.", "language": language, "format": "wav"}
        request = synthesis.parse(Task("t", "tts", inputs, {}))
        assert request.sentences == ("Am 3.4.2026: 3,50 €.",)
        synthesis.record(request, speak, 8000, engine_runs.RunContext(tmp_path))
    assert sentences == ["Am dritten April 2026: 3 Euro 50.", "Am 3.4.2026: 3 euros 50."]
