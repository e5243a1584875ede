"""Detection of speech in noise, silence and clicks."""

from __future__ import annotations

import numpy as np
import pytest

from sixfold.core.gateway.realtime.voice_activity import SpeechChange, VoiceDetector

RATE = 24_000


def noise(level: float, seconds: float, rate: int = RATE) -> bytes:
    values = np.random.default_rng(7).normal(0, level, round(rate * seconds))
    return values.clip(-32768, 32767).astype("<i2").tobytes()


def changes(data: bytes, size: int, detector: VoiceDetector) -> list[SpeechChange]:
    return [each for at in range(0, len(data), size) for each in detector.feed(data[at : at + size])]


@pytest.mark.parametrize("size", [2, 1000, 1920, 10**6])
def test_speech_begins_and_ends_at_its_samples(size: int) -> None:
    data = noise(30, 0.2) + noise(3000, 0.3) + noise(30, 0.3)
    found = changes(data, size, VoiceDetector(0.5, 200, RATE, position=1000))
    assert found == [SpeechChange(True, 1000 + 4800), SpeechChange(False, 1000 + 4800 + 7200 + 4800)]


def test_click_and_short_pause_do_not_change_the_state() -> None:
    click = noise(30, 0.2) + noise(9000, 0.04) + noise(30, 0.5)
    assert changes(click, 960, VoiceDetector(0.5, 200, RATE)) == []
    pause = noise(3000, 0.3) + noise(30, 0.1) + noise(3000, 0.3)
    assert [each.is_start for each in changes(pause, 960, VoiceDetector(0.5, 200, RATE))] == [True]


@pytest.mark.parametrize(("threshold", "is_speech"), [(0.0, True), (0.3, True), (0.6, False), (1.0, False)])
def test_a_higher_threshold_needs_louder_speech(threshold: float, is_speech: bool) -> None:
    quiet = noise(327, 0.5, 8_000)
    assert bool(changes(quiet, 960, VoiceDetector(threshold, 500, 8_000))) == is_speech


def test_speech_that_was_committed_can_begin_again() -> None:
    detector = VoiceDetector(0.5, 200, RATE)
    assert len(changes(noise(3000, 0.2), 960, detector)) == 1
    detector.stop()
    assert not detector.is_speaking
    assert [each.position for each in changes(noise(3000, 0.2), 960, detector)] == [4800]
