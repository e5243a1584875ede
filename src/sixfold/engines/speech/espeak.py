"""Bindings to espeak-ng from the package `espeakng-loader`: formant synthesis and phonemes.

The library is loaded again for every call, which takes 5 ms: an instance preserves the phase of its
oscillators and its noise between texts, and only a fresh instance reproduces the same samples.
"""

from __future__ import annotations

import _ctypes
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError

Wave = NDArray[np.float32]

# The range, in words per minute, in which the voice quality does not change.
SLOWEST, FASTEST = 80, 440
_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_UTF8 = 1
_IPA = 0x02
_RATE, _VOLUME, _PITCH, _RANGE, _GAP = 1, 2, 3, 4, 7
_NOISE_SEED = 1
# The library has global state, so one thread at a time may use it.
_LOCK = threading.Lock()
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class EspeakStyle(msgspec.Struct, frozen=True):
    """A voice by the library's name (`en-us+f3`), pitch and range in 0..99, and speed."""

    name: str
    pitch: int
    pitch_range: int
    words_per_minute: int


@contextmanager
def _library() -> Iterator[tuple[Any, int]]:
    """Load the library exclusively; yield it and its sample rate."""
    import espeakng_loader

    with _LOCK:
        library = ctypes.CDLL(espeakng_loader.get_library_path())
        try:
            rate = library.espeak_Initialize(
                _SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), _DONT_EXIT
            )
            if rate <= 0:
                raise EngineError("espeak-ng cannot read its data: reinstall `sixfold[embedded]`.")
            library.espeak_ng_SetRandSeed(ctypes.c_long(_NOISE_SEED))
            yield library, rate
        finally:
            library.espeak_Terminate()
            _ctypes.dlclose(library._handle)


def _select_voice(library: Any, name: str) -> None:
    if library.espeak_SetVoiceByName(name.encode()) != 0:
        raise EngineError(f"espeak-ng does not have the voice {name}.")


def synthesize(text: str, style: EspeakStyle) -> tuple[Wave, int]:
    """Return the text as mono samples from -1 to 1, and the sample rate."""
    pieces: list[NDArray[np.int16]] = []

    def receive(samples: Any, count: int, _events: Any) -> int:
        if count > 0:
            pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    # The callback must stay referenced while the library may call it.
    callback = _Callback(receive)
    with _library() as (library, rate):
        library.espeak_SetSynthCallback(callback)
        _select_voice(library, style.name)
        parameters = (
            (_RATE, style.words_per_minute),
            (_VOLUME, 90),
            (_PITCH, style.pitch),
            (_RANGE, style.pitch_range),
            (_GAP, 0),
        )
        for parameter, value in parameters:
            library.espeak_SetParameter(parameter, value, 0)
        data = _encode(text)
        library.espeak_Synth(data, ctypes.c_size_t(len(data)), 0, 1, 0, _UTF8, None, None)
        library.espeak_Synchronize()
    samples = np.concatenate(pieces) if pieces else np.zeros(0, np.int16)
    return samples.astype(np.float32) / np.float32(32768), rate


def phonemes(text: str, name: str) -> str:
    """Return the text in the International Phonetic Alphabet, as pronounced by the named voice."""
    parts: list[str] = []
    with _library() as (library, _):
        _select_voice(library, name)
        convert = library.espeak_TextToPhonemes
        convert.restype = ctypes.c_char_p
        data = ctypes.create_string_buffer(_encode(text))
        rest = ctypes.c_void_p(ctypes.addressof(data))
        # Each call converts one clause.
        while rest.value:
            clause = convert(ctypes.byref(rest), _UTF8, _IPA)
            parts.append((clause or b"").decode("utf-8", "replace").strip())
    return " ".join(part for part in parts if part)


def _encode(text: str) -> bytes:
    return text.replace("\0", " ").encode("utf-8", "replace") + b"\0"
