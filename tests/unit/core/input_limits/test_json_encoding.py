"""JSON in pieces equals JSON in one call, and no call holds the GIL for long."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sixfold.core.input_limits import json_encoding
from tests import gil_time

ROW = [n / 7 for n in range(768)]
VALUES: list[Any] = [
    [],
    {},
    None,
    [[]],
    [1],
    ["é", None, True, 1.5, [2], {"a": []}],
    {"rows": [ROW] * 50, "one": [[list(range(40_000))]], "text": "x" * 40_000},
    [{"a": (1, 2)}] * 20_000,
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_pieces_equal_the_whole(value: Any) -> None:
    assert json_encoding.encode(value) == msgspec.json.encode(value)


@pytest.mark.parametrize("value", [[ROW] * 2048, [0.1] * 3_000_000], ids=["vectors", "numbers"])
def test_many_numbers_are_encoded_in_short_calls(value: Any) -> None:
    assert gil_time.longest_call(lambda: json_encoding.encode(value), 15) < 45
