"""The WordPiece tokenizer against the package `tokenizers`, which defines its ids."""

from __future__ import annotations

import functools
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sixfold.engines.text.word_piece import WordPiece

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `test`")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


# The characters of Unicode 3.2 whose kind has not changed since: `tokenizers` does not know all newer ones.
@functools.cache
def encodable() -> list[str]:
    known = [chr(code) for code in range(0x110000) if unicodedata.ucd_3_2_0.category(chr(code)) != "Cn"]
    return [
        each for each in known if unicodedata.category(each) == unicodedata.ucd_3_2_0.category(each) != "Cs"
    ]


def texts() -> st.SearchStrategy[str]:
    return st.text(st.sampled_from(encodable()) | st.sampled_from(" \t\n\x00-’éßİΣ中한😀the"), max_size=60)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a vocabulary of every character and a few words in the format of Hugging Face."""
    ids = dict.fromkeys(
        [*SPECIAL, *encodable(), *(f"##{each}" for each in encodable()), "the", "fox", "##es"]
    )
    vocabulary = {word: number for number, word in enumerate(ids)}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    ends = {name: {"id": name, "ids": [vocabulary[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    pieces: list[Any] = [{"SpecialToken": {"id": name, "type_id": 0}} for name in ends]
    pieces.insert(1, {"Sequence": {"id": "A", "type_id": 0}})
    document = {
        "version": "1.0", "truncation": None, "padding": None, "decoder": None,
        "added_tokens": [
            {"id": index, "content": word, "special": True, **flags} for index, word in enumerate(SPECIAL)
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": pieces, "pair": pieces,
                           "special_tokens": ends},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocabulary},
    }  # fmt: skip
    result = tmp_path_factory.mktemp("words") / "tokenizer.json"
    result.write_text(json.dumps(document), "utf-8")
    return result


@pytest.mark.nightly
def test_each_character_has_the_ids_of_the_library(path: Path) -> None:
    text = " ".join(f"a{each}b" for each in encodable())
    expected = tokenizers.Tokenizer.from_file(str(path)).encode(text).ids
    assert WordPiece(path, len(expected)).encode(text) == expected


def test_texts_have_the_ids_of_the_library(path: Path) -> None:
    library, own = tokenizers.Tokenizer.from_file(str(path)), WordPiece(path, 30)
    library.enable_truncation(30)

    @settings(max_examples=3 * settings().max_examples, deadline=None)
    @given(st.lists(texts() | st.sampled_from([*SPECIAL, "foxes", "x" * 100, "x" * 101]), max_size=4))
    def check(parts: list[str]) -> None:
        text = " ".join(parts)
        assert own.encode(text) == library.encode(text).ids

    check()


def test_another_kind_of_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}}}', "utf-8")
    with pytest.raises(ValueError, match="not a WordPiece"):
        WordPiece(tmp_path / "tokenizer.json", 256)
