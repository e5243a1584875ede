"""The 26 voices of `data/voices.toml`, language hints, and loading of ONNX voice networks."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from sixfold.core.catalog.engines import UnusableInput

# The synthesizer's names of languages that differ from the language code.
_OWN = {"en": "en-us", "pt": "pt-br", "no": "nb"}
_CODES = (
    "en es fr de it pt nl sv da nb no fi pl cs sk hu ro el tr ru uk hi id vi ca eo la sw cy is hr bg lt lv et"
)
_THREADS = 2
_ERRORS_ONLY = 3
LANGUAGES = {code: _OWN.get(code, code) for code in _CODES.split()}
_NAMES = {
    "english": "en", "spanish": "es", "french": "fr", "german": "de", "italian": "it", "portuguese": "pt",
    "dutch": "nl", "swedish": "sv", "danish": "da", "norwegian": "nb", "finnish": "fi", "polish": "pl",
    "russian": "ru", "turkish": "tr", "greek": "el", "hindi": "hi", "ukrainian": "uk", "czech": "cs",
}  # fmt: skip


class SpeakingVoice(msgspec.Struct, frozen=True):
    """A voice, with the fields of its row in `data/voices.toml`."""

    id: str
    language: str
    accent: str
    color: str
    pitch: int
    lilt: int
    pace: int
    warmth: float


@cache
def table() -> Mapping[str, SpeakingVoice]:
    """Return all voices by id, in the order of the table."""
    text = resources.files("sixfold.data").joinpath("voices.toml").read_text("utf-8")
    return {name: SpeakingVoice(id=name, **row) for name, row in tomllib.loads(text).items()}


def find(name: str) -> SpeakingVoice:
    """Return the voice with an id in any case, or the first voice for an empty id; raises `UnusableInput`."""
    voices = table()
    key = name.strip().casefold()
    if not key:
        return next(iter(voices.values()))
    if key not in voices:
        raise UnusableInput(f"Voice {name!r} was not found; the voices are {', '.join(voices)}.")
    return voices[key]


def language(hint: str) -> str:
    """Return the code for `de`, `de-AT` or `German`, or "" for `auto`; raises `UnusableInput`."""
    name = hint.strip().casefold()
    if name in ("", "auto"):
        return ""
    code = _NAMES.get(name, name.replace("_", "-").partition("-")[0])
    if code not in LANGUAGES:
        raise UnusableInput(f"Language {hint!r} is not supported; the languages are {', '.join(LANGUAGES)}.")
    return code


def accent(voice: SpeakingVoice, hint: str) -> str:
    """Return the synthesizer's language for a voice and a hint."""
    code = language(hint)
    return voice.accent if code in ("", voice.language) else LANGUAGES[code]


def open_network(path: Path) -> Any:
    """Load an ONNX network on two CPU threads; raises `RuntimeError` or `ValueError`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS
    options.log_severity_level = _ERRORS_ONLY
    faults = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    try:
        return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    except (faults.InvalidProtobuf, faults.InvalidGraph, faults.Fail) as error:
        # These exceptions do not derive from `ValueError` or `RuntimeError`, unlike those for other damage.
        raise ValueError(str(error)) from error
