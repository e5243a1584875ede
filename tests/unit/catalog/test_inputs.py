"""Inputs are checked against their descriptors: every invalid one is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.catalog import inputs
from sixfold.core.catalog.inputs import Descriptor
from sixfold.errors import InvalidInput

DESCRIPTORS = (
    Descriptor("prompt", "string", required=True, max_chars=10),
    Descriptor("size", "string", default="a", choices=("a", "b")),
    Descriptor("width", "integer", default=64, min=64, max=2048, snap=16),
    Descriptor("strength", "number", min=0.1, max=1),
    Descriptor("fast", "boolean", default=True),
    Descriptor("image", "image"),
)


def _problems(given_inputs: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInput) as excinfo:
        inputs.check(DESCRIPTORS, given_inputs)
    return {problem.input: problem.message for problem in excinfo.value.problems}


def test_defaults_are_added_and_unknown_inputs_dropped() -> None:
    assert inputs.check(DESCRIPTORS, {"prompt": "x", "other": 1}) == {
        "prompt": "x",
        "size": "a",
        "width": 64,
        "fast": True,
    }


def test_error_names_every_invalid_input() -> None:
    assert _problems({"size": "c", "width": "wide", "strength": 2, "fast": 1, "image": 3}) == {
        "prompt": "prompt is required",
        "size": "size must be one of a, b (got c)",
        "width": "width must be a whole number from 64 to 2048",
        "strength": "strength must be from 0.1 to 1 (got 2)",
        "fast": "fast must be true or false",
        "image": "image must be a URL, a `data:` URL or an upload (got 3): `POST /api/uploads` stores a "
        "file and returns its URL",
    }


def test_pattern_error_lists_the_choices_or_an_example() -> None:
    voice = Descriptor("voice", "string", pattern="|ava|ben", like="ava")
    name = Descriptor("name", "string", pattern="[a-z]{2}", like="my")
    assert inputs.check((voice, name), {"voice": "", "name": "ab"}) == {"voice": "", "name": "ab"}
    with pytest.raises(InvalidInput) as excinfo:
        inputs.check((voice, name), {"voice": "zoe", "name": "A"})
    assert [problem.message for problem in excinfo.value.problems] == [
        "voice must be one of ava, ben (got zoe)",
        "name must have the form `my` (got A)",
    ]


@pytest.mark.parametrize("number", ["15", "8193", "00015", "99999"])
def test_numbers_in_a_string_must_be_within_their_range(number: str) -> None:
    widths = Descriptor("widths", "string", pattern=r"\d{1,5}(,\d{1,5})*", like="320,640", each=(16, 8192))
    assert inputs.check((widths,), {"widths": "16,0320,8192"}) == {"widths": "16,0320,8192"}
    with pytest.raises(InvalidInput) as excinfo:
        inputs.check((widths,), {"widths": f"320,{number}"})
    assert [problem.message for problem in excinfo.value.problems] == [
        f"widths must be from 16 to 8192 (got {int(number)})"
    ]


def test_one_sided_limit_is_named_for_wrong_types_too() -> None:
    least, most = Descriptor("a", "integer", min=0), Descriptor("b", "number", max=2)
    with pytest.raises(InvalidInput) as excinfo:
        inputs.check((least, most), {"a": "x", "b": "y"})
    assert [problem.message for problem in excinfo.value.problems] == [
        "a must be a whole number of at least 0",
        "b must be a number of at most 2",
    ]


@pytest.mark.parametrize("blank", ["", "   ", None])
def test_a_blank_number_without_a_default_is_omitted(blank: str | None) -> None:
    assert "strength" not in inputs.check(DESCRIPTORS, {"prompt": "x", "strength": blank})
    if blank is not None:
        assert _problems({"prompt": "x", "width": blank}) == {
            "width": "width must be a whole number from 64 to 2048"
        }


@pytest.mark.parametrize("blank", ["", "   ", None])
def test_a_blank_required_text_is_missing(blank: str | None) -> None:
    assert _problems({"prompt": blank}) == {"prompt": "prompt is required"}


@pytest.mark.parametrize(("given_width", "width"), [(64, 64), (71, 64), (73, 80), (128.0, 128), (None, 64)])
def test_integers_are_rounded_to_steps_and_null_is_the_default(given_width: object, width: int) -> None:
    assert inputs.check(DESCRIPTORS, {"prompt": "x", "width": given_width})["width"] == width


@pytest.mark.parametrize("width", [63, 57, 2049, 2055, 10**400])
def test_limits_apply_before_a_number_is_rounded(width: int) -> None:
    assert _problems({"prompt": "x", "width": width})["width"].startswith("width must be from 64 to 2048")


def test_empty_text_is_a_value_except_for_urls() -> None:
    assert _problems({"prompt": "x", "size": "", "width": "", "image": " "}) == {
        "size": "size must be one of a, b",
        "width": "width must be a whole number from 64 to 2048",
    }


@pytest.mark.parametrize("number", [True, float("nan"), float("inf"), "1", [1]])
def test_number_input_rejects_other_values(number: object) -> None:
    assert "strength" in _problems({"prompt": "x", "strength": number})


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400, 1e300])
def test_unbounded_integer_has_the_transport_bounds(number: float) -> None:
    seed = Descriptor("seed", "integer")
    with pytest.raises(InvalidInput, match="seed must be from -9223372036854775808 to 9223372036854775807"):
        inputs.check((seed,), {"seed": number})
    assert inputs.check((seed,), {"seed": 2**63 - 1}) == {"seed": 2**63 - 1}


def test_lone_surrogate_is_refused() -> None:
    assert _problems({"prompt": "\ud83d"}) == {"prompt": "prompt must be valid Unicode"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.fixed_dictionaries({descriptor.name: _JSON for descriptor in DESCRIPTORS}))
def test_any_json_is_either_checked_or_refused(given_inputs: dict[str, Any]) -> None:
    try:
        checked = inputs.check(DESCRIPTORS, given_inputs)
    except InvalidInput:
        return
    assert isinstance(checked["prompt"], str)
    assert checked["size"] in {"a", "b"}
    assert 64 <= checked["width"] <= 2048


def test_text_pattern_and_required_other_input_are_checked() -> None:
    score = Descriptor("score", "string", needs={"plan": ("full", "melody")})
    plan = Descriptor("plan", "string", default="full", choices=("full", "melody", "off"))
    key = Descriptor("key", "string", pattern="[A-G]", like="C")
    with pytest.raises(InvalidInput) as excinfo:
        inputs.check((score, plan, key), {"score": "CDE", "plan": "off", "key": "H"})
    assert [problem.message for problem in excinfo.value.problems] == [
        "key must have the form `C` (got H)",
        "score requires plan full or melody",
    ]
    assert inputs.check((score, plan), {"score": "", "plan": "off"}) == {"score": "", "plan": "off"}
    assert inputs.check((score, plan), {"score": "CDE"}) == {"score": "CDE", "plan": "full"}


def test_input_can_be_required_by_the_value_of_another() -> None:
    task = Descriptor("task", "string", choices=("listen", "speak"), default="speak")
    audio = Descriptor("audio", "audio", required_for={"task": ["listen"]})
    assert inputs.check((task, audio), {}) == {"task": "speak"}
    with pytest.raises(InvalidInput, match="audio is required for task listen"):
        inputs.check((task, audio), {"task": "listen"})


def test_one_of_two_inputs_is_required_where_no_task_needs_one() -> None:
    task = Descriptor("task", "string", choices=("listen", "speak", "talk"), default="talk")
    audio = Descriptor("audio", "audio", required_for={"task": ["listen"]})
    text = Descriptor("text", "string", default="", required_for={"task": ["speak"]}, unless=("audio",))
    for values, message in (
        ({}, "text or audio is required"),
        ({"text": "  "}, "text or audio is required"),
        ({"task": "listen"}, "audio is required for task listen"),
        ({"task": "speak"}, "text is required for task speak"),
    ):
        with pytest.raises(InvalidInput) as excinfo:
            inputs.check((task, audio, text), values)
        assert excinfo.value.message == message
    for values in ({"text": "hello"}, {"audio": "https://a.test/b.wav"}):
        assert inputs.check((task, audio, text), values)["task"] == "talk"


def test_invalid_input_is_not_also_reported_missing() -> None:
    task = Descriptor("task", "string", choices=("listen", "speak"), default="speak")
    audio = Descriptor("audio", "audio", required_for={"task": ["listen"]})
    prompt = Descriptor("prompt", "string", unless=("messages",))
    with pytest.raises(InvalidInput) as excinfo:
        inputs.check((task, audio, prompt), {"task": "listen", "audio": 5, "prompt": 5})
    assert [problem.message for problem in excinfo.value.problems] == [
        "audio must be a URL, a `data:` URL or an upload (got 5): `POST /api/uploads` stores a file "
        "and returns its URL",
        "prompt must be a string",
    ]
