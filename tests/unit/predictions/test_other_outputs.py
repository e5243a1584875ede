"""Named outputs of a prediction, whatever data an engine returned."""

from __future__ import annotations

from typing import Any

import pytest

from sixfold.core.media.outputs import Output
from sixfold.core.media.ports import OutputFile

FIRST = OutputFile("a.png", "blob/a", "image/png", 1, {})
SECOND = OutputFile("b.png", "blob/b", "image/png", 1, {"output": "mask"})
STRAY = OutputFile("c.png", "blob/c", "image/png", 1, {"output": ["mask"]})


@pytest.mark.parametrize("value", [5, None, "text", [1, 2], {"seed": 1}, {"seed": None}])
def test_data_with_any_key_is_not_in_the_other_outputs(value: Any) -> None:
    output = Output((FIRST,), {"_outputs": value})
    assert output.first == output
    assert output.named == {}


def test_other_outputs_are_files_or_values_by_name() -> None:
    output = Output((FIRST, SECOND, STRAY), {"_outputs": 5}, {"mask": None, "seed": 7, "tags": ["x"]})
    assert output.first == Output((FIRST,), {"_outputs": 5})
    assert output.named == {"mask": [SECOND], "seed": 7, "tags": ["x"]}


def test_a_file_never_replaces_or_joins_a_value_of_its_name() -> None:
    output = Output((SECOND,), {}, {"mask": 5})
    assert output.named == {"mask": 5}
