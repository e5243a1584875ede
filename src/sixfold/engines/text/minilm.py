"""all-MiniLM-L6-v2 in numpy: embeddings of 384 dimensions, without torch.

`sixfold engines add embeddings` installs the weights and the tokenizer as `model.safetensors` and
`tokenizer.json` in one folder. The forward pass is BERT's (Devlin et al. 2018), the pooling the mean over the
tokens (Reimers and Gurevych 2019); the result equals PyTorch's within 1e-6.
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

from sixfold.engines.text.word_piece import WordPiece

Floats: TypeAlias = NDArray[np.float32]

_LOG = logging.getLogger(__name__)

NAME = "all-minilm-l6-v2/1"  # must change whenever the vector of a text changes
UNREADABLE = (ImportError, OSError, ValueError, KeyError)
FILES = ("model.safetensors", "tokenizer.json")
_LAYERS, _HEADS = 6, 12
_MAX_TOKENS = 256  # tokens of a text, the model's limit; the rest is ignored
_BATCH_TOKENS = 2048  # tokens of a pass with padding, which fit into a core's cache
_EPSILON = np.float32(1e-12)
_SQRT_HALF = np.float32(0.5**0.5)
_ERF = tuple(map(np.float32, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)))
_ERF_P = np.float32(0.3275911)


class MiniLM:
    """The loaded model: 45 MB of memory, and as much again mapped from the file."""

    name = NAME

    def __init__(self, folder: Path) -> None:
        """Load from `folder`; raises `ImportError` without the extra, else `OSError` or `ValueError`."""
        from threadpoolctl import threadpool_limits

        # BLAS threads busy-wait for each other: on busy cores a pass took twelve times the CPU time of one.
        threadpool_limits(1, "blas")
        weights = _safetensors(folder / "model.safetensors")
        self._tokenizer = WordPiece(folder / "tokenizer.json", _MAX_TOKENS)
        self._words = weights["embeddings.word_embeddings.weight"]
        positions = weights["embeddings.position_embeddings.weight"]
        self._positions = positions + weights["embeddings.token_type_embeddings.weight"][0]
        self._norm = _weight_and_bias(weights, "embeddings.LayerNorm")
        self._layers = [_EncoderLayer(weights, number) for number in range(_LAYERS)]
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a normalized vector for each text as bytes of 32-bit floats; other threads wait."""
        with self._lock:
            return [row.tobytes() for row in self.vectors(texts)]

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return normalized vectors as an array of shape (texts, 384); not thread-safe."""
        tokens = [self._tokenizer.encode(_clean(text)) for text in texts]
        vectors = np.zeros((len(texts), self._words.shape[1]), np.float32)
        for batch in _batches([len(ids) for ids in tokens]):
            vectors[batch] = self._forward([tokens[place] for place in batch])
        return vectors

    def _forward(self, tokens: Sequence[Sequence[int]]) -> Floats:
        longest = max(map(len, tokens))
        ids = np.zeros((len(tokens), longest), np.int64)
        mask = np.zeros((len(tokens), longest, 1), np.float32)
        for place, of_text in enumerate(tokens):
            ids[place, : len(of_text)] = of_text
            mask[place, : len(of_text)] = 1
        state = _layer_norm(self._words[ids] + self._positions[:longest], self._norm)
        hidden = (mask.reshape(len(tokens), 1, 1, longest) - 1) * np.float32(1e9)
        for layer in self._layers:
            state = layer(state, hidden)
        mean = (state * mask).sum(1) / mask.sum(1)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


class _EncoderLayer:
    """Self-attention and a feed-forward network, each with a residual connection and layer normalization."""

    def __init__(self, weights: dict[str, Floats], number: int) -> None:
        prefix = f"encoder.layer.{number}."
        parts = [
            _weight_and_bias(weights, f"{prefix}attention.self.{name}") for name in ("query", "key", "value")
        ]
        self._project = (
            np.ascontiguousarray(np.concatenate([weight for weight, _ in parts]).T),
            np.concatenate([bias for _, bias in parts]),
        )
        self._output = _dense(weights, f"{prefix}attention.output.dense")
        self._output_norm = _weight_and_bias(weights, f"{prefix}attention.output.LayerNorm")
        self._widen = _dense(weights, f"{prefix}intermediate.dense")
        self._narrow = _dense(weights, f"{prefix}output.dense")
        self._norm = _weight_and_bias(weights, f"{prefix}output.LayerNorm")

    def __call__(self, state: Floats, hidden: Floats) -> Floats:
        texts, length, width = state.shape
        projected = (state @ self._project[0] + self._project[1]).reshape(texts, length, 3, _HEADS, -1)
        query, key, value = projected.transpose(2, 0, 3, 1, 4)
        scale = np.float32(query.shape[-1] ** -0.5)
        attended = _softmax(query @ key.swapaxes(2, 3) * scale + hidden) @ value
        joined = attended.transpose(0, 2, 1, 3).reshape(texts, length, width)
        added: Floats = joined @ self._output[0] + self._output[1]
        state = _layer_norm(state + added, self._output_norm)
        wide: Floats = _gelu(state @ self._widen[0] + self._widen[1])
        narrow: Floats = wide @ self._narrow[0] + self._narrow[1]
        return _layer_norm(state + narrow, self._norm)


def find(family: Path) -> MiniLM | None:
    """Return the model in the first folder of `family`, or None if it is missing or damaged (logged)."""
    folder = next((path.parent for path in sorted(family.glob(f"[!.]*/{FILES[0]}"))), None)
    if folder is None:
        return None
    try:
        return MiniLM(folder)
    except UNREADABLE as error:
        _LOG.warning("The embedding model in %s cannot be loaded: %s", folder, error)
        return None


def _clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace").decode()


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield batches of indices of texts of similar length, shortest first, to limit padding."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _safetensors(path: Path) -> dict[str, Floats]:
    """Map the 32-bit tensors of a safetensors file (https://github.com/huggingface/safetensors)."""
    size = path.stat().st_size
    if size < 8:
        raise ValueError(f"{path.name} is empty")
    with path.open("rb") as file:
        (head,) = struct.unpack("<Q", file.read(8))
        if head > size - 8:
            raise ValueError(f"{path.name} is damaged: its header is longer than the file")
        table: dict[str, Any] = json.loads(file.read(head))
    mapped = np.memmap(path, np.uint8, "r", offset=0)
    tensors: dict[str, Floats] = {}
    for name, entry in table.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + head + offset for offset in entry["data_offsets"])
            tensors[name] = mapped[begin:end].view(np.float32).reshape(entry["shape"])
    return tensors


def _weight_and_bias(weights: dict[str, Floats], name: str) -> tuple[Floats, Floats]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def _dense(weights: dict[str, Floats], name: str) -> tuple[Floats, Floats]:
    weight, bias = _weight_and_bias(weights, name)
    return np.ascontiguousarray(weight.T), bias


def _layer_norm(state: Floats, scale: tuple[Floats, Floats]) -> Floats:
    centered: Floats = state - state.mean(-1, keepdims=True)
    centered /= np.sqrt(np.square(centered).mean(-1, keepdims=True) + _EPSILON)
    centered *= scale[0]
    centered += scale[1]
    return centered


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
    tail *= values * np.float32(0.5)  # half of the tail is on either side
    return np.where(values > 0, values - tail, tail)
