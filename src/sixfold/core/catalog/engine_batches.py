"""Engines that run several tasks together: the seam between them and a worker with several lanes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sixfold.core.catalog.engines import Canceled, Context, Engine, Result, Task


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One task of a batch, with its own way to the outside."""

    task: Task
    context: Context


class BatchEngine(Engine, Protocol):
    """An engine that runs tasks of equal shape together for less than one after the other."""

    def shape(self, task: Task) -> Hashable:
        """Tasks whose shapes are equal may run together; one of shape None runs alone."""
        ...

    def run_many(self, jobs: Sequence[BatchJob]) -> Sequence[Result | Exception | Canceled]:
        """Each job's result or how it ended, in order; a canceled one leaves the others running."""
        ...
