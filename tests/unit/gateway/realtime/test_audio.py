"""G.711, and its conversion from PCM with 24 kHz."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest

from sixfold.core.gateway.realtime import audio

# Codes of both laws with the samples of the standard: the zeros and the ends of the scale.
LEVELS: dict[audio.Encoding, dict[int, int]] = {
    "audio/pcmu": {0xFF: 0, 0x7F: 0, 0x80: 32124, 0x00: -32124, 0xF0: 120, 0x70: -120},
    "audio/pcma": {0xD5: 8, 0x55: -8, 0xAA: 32256, 0x2A: -32256, 0xC5: 264, 0x45: -264},
}


def tone(hertz: float, rate: int, amplitude: float = 12_000, seconds: float = 0.5) -> np.ndarray:
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)


def samples(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<i2").astype(float)


@pytest.mark.parametrize("encoding", LEVELS)
def test_g711_codes_have_the_levels_of_the_standard(encoding: audio.Encoding) -> None:
    for code, level in LEVELS[encoding].items():
        assert audio.decode(bytes([code]), encoding) == struct.pack("<h", level), hex(code)


@pytest.mark.parametrize("encoding", LEVELS)
def test_tone_in_the_speech_range_is_kept(encoding: audio.Encoding) -> None:
    data = audio.encode(tone(440, 24_000).astype("<i2").tobytes(), encoding)
    result, expected = samples(audio.decode(data, encoding)), tone(440, 8_000)
    assert result.size == expected.size
    assert np.sum((result - expected) ** 2) < np.sum(expected**2) / 1000


@pytest.mark.parametrize("encoding", LEVELS)
def test_encoded_slices_equal_the_whole(encoding: audio.Encoding) -> None:
    pcm = np.random.default_rng(3).integers(-20_000, 20_000, 3_001).astype("<i2").tobytes()
    slices = [audio.encode(pcm, encoding, start, 300) for start in range(0, 1_000, 300)]
    assert [len(each) for each in slices] == [300, 300, 300, 100]
    assert b"".join(slices) == audio.encode(pcm, encoding)


def test_tones_that_8_khz_cannot_carry_are_removed() -> None:
    data = audio.encode(tone(8_000, 24_000).astype("<i2").tobytes(), "audio/pcmu")
    assert np.sqrt(np.mean(samples(audio.decode(data, "audio/pcmu")) ** 2)) < 100


def test_the_loudest_square_wave_is_encoded() -> None:
    square = np.where(tone(300, 24_000) > 0, 32767, -32768).astype("<i2").tobytes()
    assert len(audio.encode(square, "audio/pcma")) == 4000


def test_pcm_keeps_whole_samples_and_becomes_wav() -> None:
    assert audio.decode(b"\1\2\3", "audio/pcm") == b"\1\2"
    assert audio.encode(b"\1\2", "audio/pcm") == b"\1\2"
    with wave.open(io.BytesIO(audio.wav(b"\1\2" * 10, 8_000))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (8_000, 1, 10)
    assert audio.KINDS["audio/pcm"].milliseconds(48_000) == 1000
    assert audio.KINDS["audio/pcmu"].milliseconds(4_000) == 500
