"""Mutation tests of state machines: databases with a fault, which a machine must detect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

Mutant = Callable[[Any], None]


def statement(name: str, old: str, new: str) -> Mutant:
    """Return a mutant that replaces a part of a named query."""

    def change(database: Any) -> None:
        queries = dict(database.queries)
        assert old in queries[name].sql
        queries[name] = replace(queries[name], sql=queries[name].sql.replace(old, new))
        database.queries = queries

    return change


def passes(case: Any, mutant: Mutant | None) -> bool:
    """Run a machine's test case and return whether it passed; print failures without a mutant."""
    result = case.defaultTestResult()
    case.run(result)
    for _, text in [*result.errors, *result.failures] if mutant is None else []:
        sys.stderr.write(text)
    return result.wasSuccessful()
