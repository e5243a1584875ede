"""Transcription of English speech with Moonshine: an encoder and a decoder in ONNX, and a list of tokens.

The networks are those of https://github.com/moonshine-ai/moonshine. The encoder reads 16 kHz samples, and the
decoder returns the text token by token, without times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.speech import transcription, voices
from sixfold.engines.speech.transcription import TimedSegment, TimedWord

Wave = NDArray[np.float32]

# Files in the folder of a model; the networks are in ONNX's own format or in that of ONNX Runtime.
_NETWORKS = ("encoder_model", "decoder_model_merged")
_SUFFIXES = (".onnx", ".ort")
_TOKENS = "tokenizer.bin"
_START, _END = 1, 2
_SPACE = "\u2581".encode()
# Beyond this rate, which is faster than any speaker, the network repeats itself.
_TOKENS_PER_SECOND = 6.5
# Shorter ranges are joined up to this length: the words around a word help to recognize it.
_JOINED_SECONDS = 15.0
_SENTENCE_ENDS = (".", "?", "!")


class MoonshineEngine:
    """Transcribes `audio_url` with the model in `source`, or in a folder of `weights`."""

    name = "moonshine"
    version = "1"

    def __init__(self, *, source: str = "", weights: str = "") -> None:
        self._network = _Network(transcription.model_folder(Path(source or weights), _TOKENS))

    def run(self, task: Task, context: Context) -> Result:
        """Return the text with its segments and words; the times of words are estimates."""
        context.progress(0.01)
        wave = transcription.load_audio(task)
        ranges = transcription.speech_ranges(wave)
        pieces = list(transcription.group_ranges(ranges, _JOINED_SECONDS))
        segments: list[TimedSegment] = []
        for number, piece in enumerate(pieces):
            context.progress(0.05 + 0.95 * number / len(pieces))
            words = self._network.words(wave[piece[0][0] : piece[-1][1]])
            for segment in _segments(words, piece):
                transcription.show(task, context, len(segments), segment.text)
                segments.append(segment)
        return transcription.result(segments, wave.size / transcription.RATE, task, "full", "en")


class _Word(msgspec.Struct, frozen=True):
    text: str
    confidence: float


class _Network:
    """The encoder, the decoder with its cache of keys and values, and the tokens."""

    def __init__(self, folder: Path) -> None:
        self._tokens = _read_tokens((folder / _TOKENS).read_bytes())
        try:
            self._encoder, self._decoder = (voices.open_network(_network(folder, name)) for name in _NETWORKS)
        except (RuntimeError, ValueError) as error:
            raise EngineError("The transcription model cannot be loaded: download it again.") from error
        shapes = {row.name: row.shape for row in self._decoder.get_inputs()}
        self._empty: Mapping[str, NDArray[np.float32]] = {
            name: np.zeros((0, shape[1], 1, shape[3]), np.float32)
            for name, shape in shapes.items()
            if name.startswith("past_key_values.")
        }

    def words(self, samples: Wave) -> list[_Word]:
        """Return the words of up to 30 seconds of speech."""
        mask = np.ones((1, samples.size), np.int64)
        (states,) = self._encoder.run(None, {"input_values": samples[None], "attention_mask": mask})
        chosen: list[tuple[bytes, float]] = []
        cache, token = dict(self._empty), _START
        for step in range(int(_TOKENS_PER_SECOND * samples.size / transcription.RATE) + 4):
            inputs = {
                "input_ids": np.array([[token]]),
                "encoder_hidden_states": states,
                "encoder_attention_mask": mask,
                "use_cache_branch": np.array([step > 0]),
            }
            logits, *present = self._decoder.run(None, inputs | cache)
            token = int(logits[0, -1].argmax())
            if token == _END:
                break
            scores = logits[0, -1].astype(np.float64)
            chosen.append((self._tokens[token], float(1 / np.exp(scores - scores[token]).sum())))
            # The keys of the encoder's states are computed in the first step only.
            changed = zip(cache, present, strict=True)
            cache |= {name: value for name, value in changed if step == 0 or ".decoder." in name}
        return _join_tokens(chosen)


def _join_tokens(tokens: Sequence[tuple[bytes, float]]) -> list[_Word]:
    """Join tokens into words, with the mean of their probabilities."""
    groups: list[list[tuple[bytes, float]]] = []
    for token, probability in tokens:
        if token.startswith(_SPACE) or not groups:
            groups.append([])
        groups[-1].append((token, probability))
    words = (
        _Word(
            b"".join(token for token, _ in group).replace(_SPACE, b" ").decode(errors="replace").strip(),
            sum(probability for _, probability in group) / len(group),
        )
        for group in groups
    )
    return [word for word in words if word.text]


def _segments(words: Sequence[_Word], ranges: Sequence[tuple[int, int]]) -> Iterator[TimedSegment]:
    """Yield a segment for each sentence in the words.

    The times of words are estimates: each word occupies a part of the ranges in proportion to its length.
    """
    starts = np.cumsum([0, *(end - start for start, end in ranges)])
    lengths = np.cumsum([0, *(len(word.text) + 1 for word in words)])
    spoken = lengths / lengths[-1] * starts[-1]
    sentence: list[TimedWord] = []
    for number, word in enumerate(words):
        first, last = (_time(float(at), ranges, starts) for at in spoken[number : number + 2])
        sentence.append(TimedWord(word.text.strip(',.;:?!"“”'), first, last, word.confidence))
        if word.text.endswith(_SENTENCE_ENDS) or number == len(words) - 1:
            text = " ".join(word.text for word in words[number + 1 - len(sentence) : number + 1])
            yield TimedSegment(text, sentence[0].start, sentence[-1].end, sentence)
            sentence = []


def _time(spoken: float, ranges: Sequence[tuple[int, int]], starts: NDArray[Any]) -> float:
    """Return the duration in seconds of a number of speech samples."""
    index = min(int(np.searchsorted(starts, spoken, "right")), len(ranges)) - 1
    return (ranges[index][0] + spoken - float(starts[index])) / transcription.RATE


def _read_tokens(data: bytes) -> list[bytes]:
    """Read tokens, each preceded by its length in one byte, or in two bytes from 128 on."""
    tokens: list[bytes] = []
    at = 0
    while at < len(data):
        length, at = data[at], at + 1
        if length >= 128 and at < len(data):
            length, at = 128 * data[at] + length - 128, at + 1
        tokens.append(data[at : at + length])
        at += length
    return tokens


def _network(folder: Path, name: str) -> Path:
    paths = [folder / f"{name}{suffix}" for suffix in _SUFFIXES]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        raise EngineError(
            f"The transcription model is incomplete: {name}.onnx is missing from {folder}; "
            "download the model again."
        )
    return path
