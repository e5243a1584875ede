"""espeak-ng through the library that comes in the package `espeakng-loader`: formant speech and phonemes.

The library is loaded anew for every use. It keeps the phase of its oscillators and its noise between two
texts; only a fresh one says the same text with the same samples twice. That takes 5 ms.
"""

from __future__ import annotations

import _ctypes
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError

Wave = NDArray[np.float32]

SLOWEST, FASTEST = 80, 440  # words a minute that it speaks without a change of manner
_SYNCHRONOUS = 2
_DONT_EXIT = 0x8000
_UTF8 = 1
_IPA = 0x02
_RATE, _VOLUME, _PITCH, _RANGE, _GAP = 1, 2, 3, 4, 7
_NOISE = 1  # where the generator of its noise begins
_ALONE = threading.Lock()  # the library is one for the whole process
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class EspeakStyle:
    """How a text is said: the voice by the library's name (`en-us+f3`), 0 to 99 each, words a minute."""

    name: str
    pitch: int
    lilt: int
    pace: int


@contextmanager
def _library() -> Iterator[tuple[Any, int]]:
    """The library, fresh, and its samples a second; nobody else uses it meanwhile."""
    import espeakng_loader

    with _ALONE:
        library = ctypes.CDLL(espeakng_loader.get_library_path())
        try:
            rate = library.espeak_Initialize(
                _SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), _DONT_EXIT
            )
            if rate <= 0:
                raise EngineError(
                    "The speech synthesiser cannot read its data; install `sixfold[embedded]` anew."
                )
            library.espeak_ng_SetRandSeed(ctypes.c_long(_NOISE))
            yield library, rate
        finally:
            library.espeak_Terminate()
            _ctypes.dlclose(library._handle)


def _choose(library: Any, name: str) -> None:
    if library.espeak_SetVoiceByName(name.encode()) != 0:
        raise EngineError(f"The speech synthesiser has no voice {name}.")


def said(text: str, manner: EspeakStyle) -> tuple[Wave, int]:
    """The text as mono samples from -1 to 1, and how many are a second."""
    heard: list[NDArray[np.int16]] = []

    def hear(samples: Any, count: int, _events: Any) -> int:
        if count > 0:
            heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    kept = _Callback(hear)  # alive as long as the library may call it
    with _library() as (library, rate):
        library.espeak_SetSynthCallback(kept)
        _choose(library, manner.name)
        facts = (
            (_RATE, manner.pace),
            (_VOLUME, 90),
            (_PITCH, manner.pitch),
            (_RANGE, manner.lilt),
            (_GAP, 0),
        )
        for parameter, value in facts:
            library.espeak_SetParameter(parameter, value, 0)
        data = _plain(text)
        library.espeak_Synth(data, ctypes.c_size_t(len(data)), 0, 1, 0, _UTF8, None, None)
        library.espeak_Synchronize()
    whole = np.concatenate(heard) if heard else np.zeros(0, np.int16)
    return whole.astype(np.float32) / np.float32(32768), rate


def phonemes(text: str, name: str) -> str:
    """The text in the International Phonetic Alphabet, as a voice of this name says it."""
    parts: list[str] = []
    with _library() as (library, _):
        _choose(library, name)
        speak = library.espeak_TextToPhonemes
        speak.restype = ctypes.c_char_p
        data = ctypes.create_string_buffer(_plain(text))
        rest = ctypes.c_void_p(ctypes.addressof(data))
        while rest.value:  # one clause a call
            clause = speak(ctypes.byref(rest), _UTF8, _IPA)
            parts.append((clause or b"").decode("utf-8", "replace").strip())
    return " ".join(part for part in parts if part)


def _plain(text: str) -> bytes:
    return text.replace("\0", " ").encode("utf-8", "replace") + b"\0"
