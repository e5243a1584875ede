"""Input budgets: adding, comparing, CPU time, and the errors of limits."""

from __future__ import annotations

import time

import pytest

from sixfold import errors
from sixfold.core.input_limits.budget import InputBudget, Limit


def budget() -> InputBudget:
    return InputBudget(
        files=Limit(3, "The archive may have at most {} files"),
        bytes=Limit(1000, "The archive may have at most {:,} bytes", errors.TooLarge),
        depth=Limit(2, "Folders may be nested at most {} levels deep"),
    )


def test_spend_up_to_each_limit_is_accepted_and_counted() -> None:
    input_budget = budget()
    input_budget.spend(files=1, bytes=400)
    input_budget.spend(files=2, bytes=600)
    assert (input_budget.amount("files"), input_budget.amount("bytes"), input_budget.amount("depth")) == (
        3,
        1000,
        0,
    )


@pytest.mark.parametrize(
    ("quantity", "error", "sentence"),
    [
        ("files", errors.InputTooLarge, "The archive may have at most 3 files"),
        ("bytes", errors.TooLarge, "The archive may have at most 1,000 bytes"),
        ("depth", errors.InputTooLarge, "Folders may be nested at most 2 levels deep"),
    ],
)
def test_spend_more_than_a_limit_raises_its_error_with_the_limit(
    quantity: str, error: type[errors.SixfoldError], sentence: str
) -> None:
    input_budget = budget()
    input_budget.spend(files=3, bytes=1000, depth=2)
    with pytest.raises(error) as excinfo:
        input_budget.spend(**{quantity: 1})
    assert excinfo.value.message == sentence


def test_check_compares_with_the_limit_and_adds_nothing() -> None:
    input_budget = budget()
    for level in (1, 2, 2, 1):
        input_budget.check(depth=level)
    with pytest.raises(errors.InputTooLarge):
        input_budget.check(depth=3)
    assert input_budget.amount("depth") == 0


def test_check_time_counts_the_processor_time_of_the_thread() -> None:
    input_budget = InputBudget(cpu_ms=Limit(20, "reading it takes more than {} ms"))
    input_budget.check_time()
    start = time.thread_time()
    while time.thread_time() - start < 0.03:
        pass
    with pytest.raises(errors.InputTooLarge, match="more than 20 ms"):
        input_budget.check_time()
    InputBudget().check_time()
