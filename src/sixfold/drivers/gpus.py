"""Assignment of graphics cards to workers: the fullest card with enough free memory, else the emptiest."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from sixfold.clients import nvml
from sixfold.clients.nvml import GpuDevice


class GpuSlots:
    """The cards of this machine and the memory reserved on each. `look` returns the current cards."""

    def __init__(self, list_cards: Callable[[], Sequence[GpuDevice]] = nvml.list_gpus) -> None:
        self._list_cards = list_cards
        self._promised: dict[int, tuple[str, int]] = {}
        self._others: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._taking = asyncio.Lock()

    async def take(self, requested_bytes: int) -> tuple[int, str]:
        """Reserve memory on a card.

        Return an id for `release` and the card's CUDA name, or 0 and "" if the machine has no cards.

        A worker uses its memory only after a while, so reservations count as used memory, in addition to that
        of other programs. If no card has enough memory, the worker shares the card with the most free memory.
        """
        async with self._taking:
            cards = await asyncio.to_thread(self._list_cards)
            if not cards:
                return 0, ""
            free = {card.uuid: self._free_bytes(card) for card in cards}
            fitting = [uuid for uuid in free if free[uuid] >= requested_bytes]
            tightest = min(fitting, key=free.__getitem__) if fitting and requested_bytes else None
            gpu = tightest or max(free, key=free.__getitem__)
            number = next(self._numbers)
            self._promised[number] = gpu, requested_bytes
            return number, gpu

    def release(self, number: int) -> None:
        """Release a reservation. Idempotent."""
        self._promised.pop(number, None)

    def promised(self) -> dict[str, int]:
        """Return the bytes reserved on each card by workers that are alive."""
        free: dict[str, int] = {}
        for uuid, size in self._promised.values():
            free[uuid] = free.get(uuid, 0) + size
        return free

    def _free_bytes(self, card: GpuDevice) -> int:
        """Return the bytes that can still be reserved.

        The memory that other programs used before the workers started stays reserved.
        """
        promised = self.promised()
        if card.uuid not in promised:
            self._others[card.uuid] = card.total_bytes - card.free_bytes
        ours = card.total_bytes - self._others.get(card.uuid, 0) - promised.get(card.uuid, 0)
        return min(card.free_bytes, ours)
