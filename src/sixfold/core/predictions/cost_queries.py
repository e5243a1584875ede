"""What each engine earned, and what other services took from the operator for its runs."""

from __future__ import annotations

from dataclasses import dataclass

from sixfold.core.database import Transaction, many, now


@dataclass(frozen=True, slots=True)
class EngineCost:
    """The successful runs of one engine. Money is micro-dollars.

    `spent` adds up what upstream services said of `told` of the runs; of the others it is not known.
    """

    engine: str
    runs: int
    earned: int
    spent: int
    told: int


def by_engine(life_us: int) -> Transaction[tuple[EngineCost, ...]]:
    """Every engine that succeeded at something within the last `life_us` microseconds."""
    since = (yield from now()) - life_us
    rows = yield from many("prediction_upstream_costs", since=since)
    return tuple(
        EngineCost(row["engine"], row["runs"], row["earned"], row["spent"], row["told"]) for row in rows
    )
