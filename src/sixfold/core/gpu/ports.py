"""Ports of the arbiter: the holders of GPU memory, and the state that processes share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from sixfold.core.gpu.state import GpuState


class GpuHolder(Protocol):
    """A program that keeps models in the GPU's memory.

    `private` is the only process that can unload its models, or empty. A `self_managed` holder unloads its
    own models when it needs memory.
    """

    name: str
    private: str
    self_managed: bool

    def canonical(self, model: str) -> str:
        """Return the name under which `residents` lists a model."""
        ...

    async def residents(self) -> Mapping[str, int | None] | None:
        """Return the bytes of each loaded model (None: not stated), or None if the holder does not respond.

        The model `""` is that of the last use.
        """
        ...

    async def unload(self, model: str) -> None:
        """Unload an idle model and wait, for a few seconds at most, until its memory is free."""
        ...

    def expected_bytes(self, model: str) -> int | None:
        """Return an estimate of a model's bytes before the first measurement, or None."""
        ...


class StateStore(Protocol):
    """The state of one GPU, shared by the processes of a machine."""

    owner: str

    async def update(self, change: Callable[[GpuState], None]) -> None:
        """Apply a change to the current state and store it; raises `OSError` on failure."""
        ...

    def read(self) -> GpuState:
        """Return the current state, without reading it again if nothing has changed. Raises `OSError`."""
        ...

    def is_alive(self, owner: str) -> bool:
        """Return whether the process with this name is running."""
        ...
