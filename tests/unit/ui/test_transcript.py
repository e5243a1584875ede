"""The lines of a transcript: from segments, from words, and none for data without times."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.ui.predictions import data_views, transcript


def lines(**data: Any) -> list[tuple[str, str]]:
    """Return the time and the text of each line."""
    drawn = transcript.draw("stt", {}, data)
    return [] if drawn is None else [(line.time, line.text) for line in drawn.lines]


def test_segments_are_lines_in_the_order_of_their_times() -> None:
    segments = [{"text": "Later. ", "start": 3725, "end": 3726.5}, {"text": "First.", "start": 0.4, "end": 2}]
    assert lines(segments=segments, words=[{"word": "x", "start": 0, "end": 1}]) == [
        ("0:00", "First."),
        ("1:02:05", "Later."),
    ]


def test_words_are_grouped_by_sentences_and_pauses() -> None:
    words = [("Open", 0.0), ("it.", 0.4), ("Then", 0.8), ("wait", 1.2), ("here", 9.0)]
    rows = [{"word": word, "start": start, "end": start + 0.3} for word, start in words]
    assert lines(words=rows) == [("0:00", "Open it."), ("0:00", "Then wait"), ("0:09", "here")]


def test_a_long_transcript_shows_its_first_lines() -> None:
    segments = [{"text": "a" * 5000, "start": at, "end": at + 1} for at in range(2000)]
    drawn = transcript.draw("stt", {}, {"segments": segments})
    assert drawn is not None
    assert (len(drawn.lines), drawn.count, len(drawn.lines[0].text)) == (600, 2000, 1000)


def test_words_of_many_hours_are_not_drawn() -> None:
    words = [{"word": "a", "start": at, "end": at + 1} for at in range(30_001)]
    assert len(lines(words=words[:-1])) == 600
    assert lines(words=words) == []


@pytest.mark.parametrize(
    "segments",
    [
        None,
        [],
        "text",
        [{"text": "No times"}],
        [{"text": "", "start": 0, "end": 1}],
        [{"text": "a", "start": "0", "end": 1}],
        [{"text": "a", "start": True, "end": 1}],
        [{"text": "a", "start": 0, "end": float("nan")}],
        [{"text": "a", "start": 0, "end": 10**400}],
        [None, 5],
    ],
)
def test_data_without_times_is_not_a_transcript(segments: Any) -> None:
    assert lines(segments=segments, text="Words") == []


def test_the_recording_is_the_first_audio_or_video_file() -> None:
    files = [("/a", "image/png"), ("/b", "video/mp4"), ("/c", "audio/mpeg")]
    assert data_views.recording(files) == data_views.RecordingView("/b", "video")
    assert data_views.recording(files[:1]) is None
