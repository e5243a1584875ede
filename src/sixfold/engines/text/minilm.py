"""all-MiniLM-L6-v2 in numpy: sentences into 384 numbers, without torch and without a network.

The weights and the tokenizer lie in a folder, `model.safetensors` and `tokenizer.json`, where `sixfold
engines add embeddings` puts them. The forward pass is BERT's (Devlin et al. 2018), the pooling the mean over
the tokens (Reimers and Gurevych 2019); the result equals PyTorch's within 1e-6.
"""

from __future__ import annotations

import json
import logging
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]

_LOG = logging.getLogger(__name__)

NAME = "all-minilm-l6-v2/1"  # another number whenever the same text gives other numbers
DIMENSIONS = 384
UNREADABLE = (ImportError, OSError, ValueError, KeyError)
FILES = ("model.safetensors", "tokenizer.json")
_LAYERS, _HEADS = 6, 12
_MOST_TOKENS = 256  # of one text, as its authors set it; the rest is not read
_BATCH_TOKENS = 2048  # of one pass, padding counted: what fits a core's cache
_EPSILON = np.float32(1e-12)
_SQRT_HALF = np.float32(0.5**0.5)
_ERF = tuple(map(np.float32, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)))
_ERF_P = np.float32(0.3275911)


class MiniLM:
    """The loaded model: 45 MB of its own, and as much again mapped from the file."""

    name = NAME

    def __init__(self, folder: Path) -> None:
        """Load from `folder`; raises `ImportError` without `tokenizers`, else `OSError` or `ValueError`."""
        from threadpoolctl import threadpool_limits
        from tokenizers import Tokenizer

        # BLAS threads that wait for each other spin: on busy cores a pass took twelve times the work of one.
        threadpool_limits(1, "blas")
        weights = _safetensors(folder / "model.safetensors")
        self._tokenizer: Any = Tokenizer.from_str(_tokenizer(folder / "tokenizer.json"))
        self._tokenizer.no_padding()  # the file says to pad to 128: here every batch is as long as it must be
        self._tokenizer.enable_truncation(_MOST_TOKENS)
        self._words = weights["embeddings.word_embeddings.weight"]
        positions = weights["embeddings.position_embeddings.weight"]
        self._positions = positions + weights["embeddings.token_type_embeddings.weight"][0]
        self._norm = _pair(weights, "embeddings.LayerNorm")
        self._layers = [_EncoderLayer(weights, number) for number in range(_LAYERS)]
        self._one_at_a_time = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of length 1 to a text, as 32-bit floats; callers in other threads wait."""
        with self._one_at_a_time:
            return [row.tobytes() for row in self.vectors(texts)]

    def vectors(self, texts: Sequence[str]) -> Floats:
        """The same as an array of shape (texts, 384)."""
        tokens = [self._tokenizer.encode(_clean(text)).ids for text in texts]
        found = np.zeros((len(texts), self._words.shape[1]), np.float32)
        for batch in _batches([len(ids) for ids in tokens]):
            found[batch] = self._forward([tokens[place] for place in batch])
        return found

    def _forward(self, tokens: Sequence[Sequence[int]]) -> Floats:
        longest = max(map(len, tokens))
        ids = np.zeros((len(tokens), longest), np.int64)
        mask = np.zeros((len(tokens), longest, 1), np.float32)
        for place, of_text in enumerate(tokens):
            ids[place, : len(of_text)] = of_text
            mask[place, : len(of_text)] = 1
        state = _normalized(self._words[ids] + self._positions[:longest], self._norm)
        hidden = (mask.reshape(len(tokens), 1, 1, longest) - 1) * np.float32(1e9)
        for layer in self._layers:
            state = layer(state, hidden)
        mean = (state * mask).sum(1) / mask.sum(1)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


class _EncoderLayer:
    """Self-attention and a feed-forward net, each with its residual and its normalization."""

    def __init__(self, weights: dict[str, Floats], number: int) -> None:
        prefix = f"encoder.layer.{number}."
        parts = [_pair(weights, f"{prefix}attention.self.{name}") for name in ("query", "key", "value")]
        self._project = (
            np.ascontiguousarray(np.concatenate([weight for weight, _ in parts]).T),
            np.concatenate([bias for _, bias in parts]),
        )
        self._output = _dense(weights, f"{prefix}attention.output.dense")
        self._output_norm = _pair(weights, f"{prefix}attention.output.LayerNorm")
        self._widen = _dense(weights, f"{prefix}intermediate.dense")
        self._narrow = _dense(weights, f"{prefix}output.dense")
        self._norm = _pair(weights, f"{prefix}output.LayerNorm")

    def __call__(self, state: Floats, hidden: Floats) -> Floats:
        texts, length, width = state.shape
        projected = (state @ self._project[0] + self._project[1]).reshape(texts, length, 3, _HEADS, -1)
        query, key, value = projected.transpose(2, 0, 3, 1, 4)
        scale = np.float32(query.shape[-1] ** -0.5)
        attended = _softmax(query @ key.swapaxes(2, 3) * scale + hidden) @ value
        joined = attended.transpose(0, 2, 1, 3).reshape(texts, length, width)
        added: Floats = joined @ self._output[0] + self._output[1]
        state = _normalized(state + added, self._output_norm)
        wide: Floats = _gelu(state @ self._widen[0] + self._widen[1])
        narrow: Floats = wide @ self._narrow[0] + self._narrow[1]
        return _normalized(state + narrow, self._norm)


def find(family: Path) -> MiniLM | None:
    """The model in one of the folders of `family`; None where none is whole, which the log tells."""
    folder = next((path.parent for path in sorted(family.glob(f"[!.]*/{FILES[0]}"))), None)
    if folder is None:
        return None
    try:
        return MiniLM(folder)
    except UNREADABLE as error:
        _LOG.warning("The embedding model in %s cannot be loaded: %s", folder, error)
        return None


def _clean(text: str) -> str:
    """A text that UTF-8 can say: half of a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of texts of about one length, short ones first, so that little is padded."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[place] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _safetensors(path: Path) -> dict[str, Floats]:
    """The 32-bit tensors of a file, mapped, not read (https://github.com/huggingface/safetensors)."""
    size = path.stat().st_size
    if size < 8:
        raise ValueError(f"{path.name} is empty")
    with path.open("rb") as file:
        (head,) = struct.unpack("<Q", file.read(8))
        if head > size - 8:
            raise ValueError(f"{path.name} is damaged: its head is longer than the file")
        table: dict[str, Any] = json.loads(file.read(head))
    mapped = np.memmap(path, np.uint8, "r", offset=0)
    found: dict[str, Floats] = {}
    for name, entry in table.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + head + offset for offset in entry["data_offsets"])
            found[name] = mapped[begin:end].view(np.float32).reshape(entry["shape"])
    return found


def _tokenizer(path: Path) -> str:
    """A tokenizer's file; raises `ValueError` for another kind, for which the library's error has no type."""
    text = path.read_text("utf-8")
    if json.loads(text).get("model", {}).get("type") != "WordPiece":
        raise ValueError(f"{path.name} holds no WordPiece tokenizer")
    return text


def _pair(weights: dict[str, Floats], name: str) -> tuple[Floats, Floats]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def _dense(weights: dict[str, Floats], name: str) -> tuple[Floats, Floats]:
    weight, bias = _pair(weights, name)
    return np.ascontiguousarray(weight.T), bias


def _normalized(state: Floats, scale: tuple[Floats, Floats]) -> Floats:
    centred: Floats = state - state.mean(-1, keepdims=True)
    centred /= np.sqrt(np.square(centred).mean(-1, keepdims=True) + _EPSILON)
    centred *= scale[0]
    centred += scale[1]
    return centred


def _softmax(scores: Floats) -> Floats:
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    return scores


def _gelu(values: Floats) -> Floats:
    """GELU by the error function (Abramowitz and Stegun 7.1.26, within 1.5e-7), with few copies."""
    x = np.abs(values)
    x *= _SQRT_HALF
    t = 1 / (1 + _ERF_P * x)
    tail = t * _ERF[-1]
    for factor in _ERF[-2::-1]:
        tail += factor
        tail *= t
    np.square(x, out=x)
    np.exp(np.negative(x, out=x), out=x)
    tail *= x
    tail *= values * np.float32(0.5)  # half of the tail lies on either side
    return np.where(values > 0, values - tail, tail)
