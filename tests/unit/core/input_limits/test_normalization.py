"""Normalization of texts with long runs of combining characters."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import get_args

import pytest

from sixfold.core.input_limits.normalization import MAX_RUN, Form, normalized
from tests import loop_time
from tests.harness.cases import nightly_after

FORMS = get_args(Form)
TEXTS = ["größe 日本語 текст हिन्दी 한국어 😀 ", "e\u0301\u0316", "ﬁ①ﾊﾞ"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", TEXTS)
def test_short_runs_normalize_as_in_the_standard_library(form: Form, text: str) -> None:
    text *= 500
    assert len(text) > 1_000
    assert normalized(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "marks", nightly_after(2, ["\u0316\u0301", "\u0f73", "\uff9e", "\u0344\u0316", "\U0001e94a\u0316"])
)
def test_long_runs_normalize_in_linear_time_with_every_mark(form: Form, marks: str) -> None:
    text = "a" + marks * 200_000
    # In quadratic time, this would take minutes.
    results: list[str] = []
    assert loop_time.cpu_seconds(lambda: results.append(normalized(form, text)), 2) < 2
    runs = [unicodedata.normalize("NFD", run) for run in results[-1].split("\u034f")]
    # Two of the characters are decomposed into two each.
    assert max(map(len, runs)) <= 1 + 2 * MAX_RUN
    decomposed = unicodedata.normalize("NFKD" if "K" in form else "NFD", marks)
    assert Counter("".join(runs)) == Counter(a=1) + Counter(decomposed * 200_000)
