"""Split the cases of a parametrized test between `make test` and `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def nightly_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases, all but the first `count` marked as nightly; a plain tuple has several arguments."""
    return [case if number < count else _nightly(case) for number, case in enumerate(cases)]


def _nightly(case: Any) -> ParameterSet:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, marks=(*case.marks, pytest.mark.nightly), id=case.id)
    values: tuple[Any, ...] = case if type(case) is tuple else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
