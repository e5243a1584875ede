"""List inputs: texts, numbers and series, as JSON or as text, and inputs with two names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.catalog import inputs, text_values
from sixfold.core.catalog.inputs import Descriptor
from sixfold.errors import InvalidInput
from sixfold.web.responses import input_schema

TEXTS = Descriptor("texts", "texts", required=True, max_items=3, max_chars=5)
LEVELS = Descriptor("levels", "numbers", default=[80], min=1, max=99, max_items=3)
SERIES = Descriptor("series", "series", max_items=4)
SIZES = Descriptor("sizes", "sizes", min=16, max=64, max_items=3)
TEXT = Descriptor("prompt", "string", required=True, aliases=["text", "input"])


def parsed_value(descriptor: Descriptor, value: Any) -> Any:
    """Return the value as an engine gets it."""
    return inputs.check((descriptor,), {descriptor.name: value})[descriptor.name]


def problem(descriptor: Descriptor, value: Any) -> str:
    """Return the error message for a value."""
    with pytest.raises(InvalidInput) as excinfo:
        inputs.check((descriptor,), {descriptor.name: value})
    return excinfo.value.problems[0].message


@pytest.mark.parametrize(
    ("descriptor", "value", "parsed"),
    [
        (TEXTS, ["a", "b"], ["a", "b"]),
        (TEXTS, "a\n\n b \r\n", ["a", "b"]),
        (TEXTS, '["a", "b"]', ["a", "b"]),
        (TEXTS, "[a", ["[a"]),
        (LEVELS, [50, 95.5], [50, 95.5]),
        (LEVELS, "50, 95.5", [50, 95.5]),
        (LEVELS, "[50, 95.5]", [50, 95.5]),
        (LEVELS, None, [80]),
        (SERIES, [1, None, 2.5], [1, None, 2.5]),
        (SERIES, "[1, null, 2.5]", [1, None, 2.5]),
        (SERIES, "1, 2.5", [1, 2.5]),
        (
            SERIES,
            [{"t": "2026-05", "y": 3}, {"t": 2, "y": None}, {"t": 3, "y": 0}],
            [{"t": "2026-05", "y": 3}, {"t": 2, "y": None}, {"t": 3, "y": 0}],
        ),
    ],
)
def test_list_is_parsed_from_json_or_text(descriptor: Descriptor, value: Any, parsed: Any) -> None:
    assert parsed_value(descriptor, value) == parsed


@pytest.mark.parametrize(
    ("descriptor", "value", "says"),
    [
        (TEXTS, [], "texts must contain at least one item"),
        (TEXTS, list("abcd"), "texts must have at most 3 texts"),
        (TEXTS, ["abcdef"], "texts must be at most 5 characters"),
        (TEXTS, [1], "texts must contain only strings"),
        (TEXTS, {"a": 1}, "texts must be a list of texts"),
        (TEXTS, " \n ", "texts is required"),
        (TEXTS, " [] ", "texts must contain at least one item"),
        (LEVELS, [100], "levels must be from 1 to 99 (got 100)"),
        (LEVELS, "80, much", "levels must contain only numbers from 1 to 99"),
        (SERIES, [float("nan")], "series must be finite"),
        (SERIES, [1], "series must have at least 2 values that are not null (got 1)"),
        (SERIES, "5", "series must have at least 2 values that are not null (got 1)"),
        (SERIES, [None, None], "series must have at least 2 values that are not null (got 0)"),
        (SERIES, [{"t": 1, "y": 2}], "series must have at least 2 values that are not null (got 1)"),
        (SERIES, [True], "series must contain only numbers"),
        (SERIES, [{"y": 1}], "series must contain a time t (a string or a number) for each y"),
        (SERIES, [{"t": 1, "y": {"t": 1, "y": 1}}], "series must contain only numbers"),
        (SERIES, "[" * 100_000, "series must contain only numbers"),
    ],
)
def test_invalid_list_is_refused_with_a_reason(descriptor: Descriptor, value: Any, says: str) -> None:
    assert problem(descriptor, value) == says


@pytest.mark.parametrize(
    "given_inputs", [{"prompt": "a"}, {"text": "a"}, {"input": "a"}, {"prompt": " ", "text": "a"}]
)
def test_input_is_accepted_under_any_of_its_names(given_inputs: dict[str, str]) -> None:
    assert inputs.check((TEXT,), given_inputs) == {"prompt": "a"}


def test_primary_input_name_has_precedence_and_is_in_errors() -> None:
    assert inputs.check((TEXT,), {"prompt": "a", "text": "b"}) == {"prompt": "a"}
    assert problem(TEXT, "") == "prompt is required"


@pytest.mark.parametrize("text", ["16x16,32x32", " 16x16, 32x32", '["16x16", {"width": 32, "height": 32}]'])
def test_sizes_are_text_only_in_forms(text: str) -> None:
    assert problem(SIZES, text) == 'sizes must be a list of sizes, such as ["1200x630"]'
    assert parsed_value(SIZES, text_values.from_text("sizes", text)) == ["16x16", "32x32"]


def test_project_is_text_only_in_forms() -> None:
    project = Descriptor("project", "project")
    assert problem(project, '{"a": 1}') == "project must be an object"
    assert text_values.from_text("project", '{"a": 1}') == {"a": 1}
    for text in ("{", "nonsense", "[1]"):
        assert problem(project, text_values.from_text("project", text)) == "project must be an object"
    assert text_values.from_text("string", '{"a": 1}') == '{"a": 1}'


def test_types_that_the_api_does_not_define_are_strings() -> None:
    kinds = ("sizes", "texts", "series", "project", "artifact", "audio")
    types = [input_schema(Descriptor("a", kind))["type"] for kind in kinds]
    assert types == ["string"] * 5 + ["audio"]


def test_input_has_exactly_the_fields_of_the_api() -> None:
    row = input_schema(Descriptor("a", "string", aliases=("b",), each=(1, 2), ignored=True))
    assert " ".join(row) == "name type description default required min max choices order"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["t", "y"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from([TEXTS, LEVELS, SERIES]), _JSON)
def test_any_json_is_a_list_or_refused(descriptor: Descriptor, value: Any) -> None:
    try:
        result = inputs.check((descriptor,), {descriptor.name: value}).get(descriptor.name)
    except InvalidInput:
        return
    assert result is None or (isinstance(result, list) and result)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "nan", "1e999"])
def test_non_finite_number_in_a_text_list_is_refused(text: str) -> None:
    for written in (f'[{{"t": {text}, "y": 1}}]', f"[{text}]", text):
        assert problem(SERIES, written)
    assert problem(LEVELS, f"50, {text}")
