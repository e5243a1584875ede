"""Audio of the Realtime API: 16-bit PCM at 24 kHz, and G.711 at 8 kHz."""

from __future__ import annotations

import array
import bisect
import functools
import io
import itertools
import sys
import wave
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

Encoding = Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
PCM_RATE: Final = 24_000
_G711_RATE: Final = 8_000
_SAMPLE_BYTES: Final = 2
# One half of a symmetric low-pass filter for the reduction from 24 to 8 kHz, from the outside to the middle:
# -3 dB at 3.0 kHz, -17 dB at 5 kHz, -56 dB at 8 kHz.
_TAPS: Final = (0.0017, -0.003, -0.0159, -0.0232, 0.0158, 0.1222, 0.249, 0.3068)
# The maximum 14-bit samples that the filter returns, including its overshoot.
_TABLE_END: Final = 10_240
_STEP: Final = PCM_RATE // _G711_RATE


class SampleFormat(NamedTuple):
    """The sample rate of an encoding, and the bytes per sample on the wire."""

    rate: int
    sample_bytes: int

    def milliseconds(self, size: int) -> int:
        """Return the duration of `size` bytes on the wire."""
        return size * 1000 // (self.rate * self.sample_bytes)


KINDS: Final[Mapping[Encoding, SampleFormat]] = {
    "audio/pcm": SampleFormat(PCM_RATE, _SAMPLE_BYTES),
    "audio/pcmu": SampleFormat(_G711_RATE, 1),
    "audio/pcma": SampleFormat(_G711_RATE, 1),
}


def decode(data: bytes, encoding: Encoding) -> bytes:
    """Return audio from the wire as 16-bit PCM at its sample rate; an odd last byte of PCM is dropped."""
    if encoding == "audio/pcm":
        return data[: len(data) // _SAMPLE_BYTES * _SAMPLE_BYTES]
    low, high = _decoding_tables(encoding)
    samples = bytearray(len(data) * _SAMPLE_BYTES)
    samples[0::2], samples[1::2] = data.translate(low), data.translate(high)
    return bytes(samples)


def encode(pcm: bytes, encoding: Encoding, start: int = 0, count: int | None = None) -> bytes:
    """Return 24 kHz PCM in an encoding.

    G.711 takes 7 ms of processor time for each second of audio: for long audio, request `count` samples at 8
    kHz at a time, beginning at `start`.
    """
    if encoding == "audio/pcm":
        return pcm
    last = len(pcm) // _SAMPLE_BYTES // _STEP
    end = last if count is None else min(last, start + count)
    # The filter reads samples before and after, which are silent outside the audio.
    margin = len(_TAPS) - 1
    first_byte = (start * _STEP - margin) * _SAMPLE_BYTES
    piece = bytes(max(0, -first_byte)) + pcm[max(0, first_byte) : (end * _STEP + margin) * _SAMPLE_BYTES]
    count = end - start
    samples = _samples(piece.ljust((count * _STEP + 2 * margin) * _SAMPLE_BYTES, b"\0"))
    rows = [samples[at : at + count * _STEP : _STEP] for at in range(2 * len(_TAPS) - 1)]
    table = _encoding_table(encoding)
    t0, t1, t2, t3, t4, t5, t6, t7 = _TAPS
    return bytes(
        [
            table[
                int(
                    (a0 + b0) * t0 + (a1 + b1) * t1 + (a2 + b2) * t2 + (a3 + b3) * t3
                    + (a4 + b4) * t4 + (a5 + b5) * t5 + (a6 + b6) * t6 + middle * t7
                ) >> 2
            ]
            for a0, a1, a2, a3, a4, a5, a6, middle, b6, b5, b4, b3, b2, b1, b0 in zip(*rows, strict=False)
        ]
    )  # fmt: skip


def wav(pcm: bytes, rate: int) -> bytes:
    """Return 16-bit PCM as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(_SAMPLE_BYTES)
        writer.setframerate(rate)
        writer.writeframes(pcm)
    return file.getvalue()


def _samples(pcm: bytes) -> Sequence[int]:
    samples = array.array("h", pcm)
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def _level(code: int, encoding: Encoding) -> int:
    """Return the sample for a G.711 code."""
    if encoding == "audio/pcmu":
        bits = ~code & 0xFF
        level = ((((bits & 0xF) << 3) + 0x84) << (bits >> 4 & 7)) - 0x84
        return -level if bits & 0x80 else level
    bits = code ^ 0x55
    exponent, level = bits >> 4 & 7, (bits & 0xF) << 4
    level = level + 8 if exponent == 0 else (level + 0x108) << (exponent - 1)
    return level if bits & 0x80 else -level


@functools.cache
def _decoding_tables(encoding: Encoding) -> tuple[bytes, bytes]:
    """Return the low and high bytes of the sample of each code."""
    words = [_level(code, encoding) & 0xFFFF for code in range(256)]
    return bytes(word & 0xFF for word in words), bytes(word >> 8 for word in words)


@functools.cache
def _encoding_table(encoding: Encoding) -> tuple[int, ...]:
    """Return the nearest code for each 14-bit sample; negative samples count from the end."""
    codes = {_level(code, encoding): code for code in range(256)}
    levels = sorted(codes)
    middles = [(low + high) / 2 for low, high in itertools.pairwise(levels)]
    samples = (*range(_TABLE_END), *range(-_TABLE_END, 0))
    return tuple(codes[levels[bisect.bisect(middles, sample * 4)]] for sample in samples)
