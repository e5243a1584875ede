"""MiniLM's forward pass against its definition, on a small model of random weights."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("threadpoolctl", reason="needs the extra `embeddings`")

from sixfold.engines.text import minilm
from sixfold.engines.text.minilm import MiniLM

WIDTH, INNER, WORDS = (
    24,
    48,
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "a", "mat", "dog", "##s", "ran"],
)
TEXTS = ("the cat sat", "the cats sat on a mat", "a dog ran", "", "unknown words", "cat " * 400)
Weights = dict[str, NDArray[np.float32]]


def random_weights(seed: int = 3) -> Weights:
    """Return the tensors of a small BERT with six layers and twelve heads."""
    draw = np.random.default_rng(seed)
    result: Weights = {}

    def put(name: str, *shape: int) -> None:
        result[name] = draw.normal(0, 0.2, shape).astype(np.float32)

    put("embeddings.word_embeddings.weight", len(WORDS), WIDTH)
    put("embeddings.position_embeddings.weight", 512, WIDTH)
    put("embeddings.token_type_embeddings.weight", 2, WIDTH)
    norms = ["embeddings.LayerNorm"]
    for number in range(6):
        layer = f"encoder.layer.{number}."
        dense = {f"attention.self.{name}": (WIDTH, WIDTH) for name in ("query", "key", "value")}
        dense |= {"attention.output.dense": (WIDTH, WIDTH), "intermediate.dense": (INNER, WIDTH)}
        dense["output.dense"] = (WIDTH, INNER)
        for name, shape in dense.items():
            put(f"{layer}{name}.weight", *shape)
            put(f"{layer}{name}.bias", shape[0])
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    for name in norms:
        put(f"{name}.weight", WIDTH)
        put(f"{name}.bias", WIDTH)
    return result


def write(folder: Path, weights: Weights) -> None:
    """Write the two files in Hugging Face's format."""
    head, data = {"__metadata__": {"format": "pt"}}, b""
    table: dict[str, object] = dict(head)
    for name, values in weights.items():
        offsets = [len(data), len(data) + values.nbytes]
        table[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": offsets}
        data += values.tobytes()
    packed = json.dumps(table).encode()
    packed += b" " * (-len(packed) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(packed)) + packed + data)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "vocab": vocabulary,
    }
    special = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    pieces = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pieces.append({"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    padding = {"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": {**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": pieces, "pair": pieces,
                           "special_tokens": special},
        "decoder": None,
        "model": {**model, "vocab": vocabulary, "max_input_chars_per_word": 100},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")


def define(weights: Weights, ids: Sequence[int]) -> NDArray[np.float64]:
    """Run BERT as in its paper, for one text in 64-bit floats."""
    w = {name: values.astype(np.float64) for name, values in weights.items()}

    def dense(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        spread = np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return (x - x.mean(-1, keepdims=True)) / spread * w[f"{name}.weight"] + w[f"{name}.bias"]

    gelu = np.vectorize(lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))))
    x = w["embeddings.word_embeddings.weight"][list(ids)]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    size = WIDTH // 12
    for number in range(6):
        layer = f"encoder.layer.{number}."
        query, key, value = (dense(x, f"{layer}attention.self.{name}") for name in ("query", "key", "value"))
        heads: list[NDArray[np.float64]] = []
        for head in range(12):
            part = slice(head * size, (head + 1) * size)
            scores = np.exp(query[:, part] @ key[:, part].T / math.sqrt(size))
            heads.append(scores / scores.sum(-1, keepdims=True) @ value[:, part])
        attended = dense(np.concatenate(heads, -1), f"{layer}attention.output.dense")
        x = norm(x + attended, f"{layer}attention.output.LayerNorm")
        wide = gelu(dense(x, f"{layer}intermediate.dense"))
        x = norm(x + dense(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, random_weights())
    return tmp_path


def test_vectors_equal_those_of_the_definition(folder: Path) -> None:
    ids = {
        "the cat sat": (2, 4, 5, 6, 3),
        "the cats sat on a mat": (2, 4, 5, 11, 6, 7, 8, 9, 3),
        "": (2, 3),
        "unknown words": (2, 1, 1, 3),
        "cat " * 400: (2, *[5] * 254, 3),
    }
    result = MiniLM(folder).vectors(list(ids))
    for row, tokens in zip(result, ids.values(), strict=True):
        assert np.abs(row - define(random_weights(), tokens)).max() < 1e-6


def test_vector_is_independent_of_other_texts(folder: Path) -> None:
    model = MiniLM(folder)
    together = model.vectors(TEXTS)
    alone = np.concatenate([model.vectors([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-6
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-6


def test_bytes_are_the_vectors_as_32_bit_floats(folder: Path) -> None:
    model = MiniLM(folder)
    assert model.embed(["a dog"]) == [model.vectors(["a dog"])[0].astype("<f4").tobytes()]
    assert model.embed([]) == []


def test_lone_surrogate_has_a_vector(folder: Path) -> None:
    assert np.isfinite(MiniLM(folder).vectors(["\ud83d cat"])).all()


def test_intact_model_of_a_family_is_found_and_damaged_is_not(tmp_path: Path) -> None:
    assert minilm.find(tmp_path) is None
    home = tmp_path / "minilm"
    home.mkdir()
    write(home, random_weights())
    assert minilm.find(tmp_path) is not None
    content = (home / "model.safetensors").read_bytes()
    for damage in (b"", content[:100], struct.pack("<Q", 2**60) + content[8:], content[:-20_000]):
        (home / "model.safetensors").write_bytes(damage)
        assert minilm.find(tmp_path) is None
