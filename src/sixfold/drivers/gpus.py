"""Graphics cards for workers: one each, the fullest that still has the room; else the one with most of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from sixfold.clients import nvml
from sixfold.clients.nvml import GpuDevice


class GpuSlots:
    """The cards of this machine, and what was promised of them. `look` tells which there are now."""

    def __init__(self, look: Callable[[], Sequence[GpuDevice]] = nvml.cards) -> None:
        self._look = look
        self._promised: dict[int, tuple[str, int]] = {}
        self._others: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._taking = asyncio.Lock()

    async def take(self, wanted_bytes: int) -> tuple[int, str]:
        """Room on a card: what `give_back` takes, and the card's name for CUDA; 0 and no name without cards.

        A worker fills its card only after a while: what was promised counts as taken, and what is taken by
        others counts too. Where no card has the room, the worker shares the one that has most.
        """
        async with self._taking:
            found = await asyncio.to_thread(self._look)
            if not found:
                return 0, ""
            room = {card.uuid: self._room(card) for card in found}
            fitting = [uuid for uuid in room if room[uuid] >= wanted_bytes]
            tightest = min(fitting, key=room.__getitem__) if fitting and wanted_bytes else None
            chosen = tightest or max(room, key=room.__getitem__)
            number = next(self._numbers)
            self._promised[number] = chosen, wanted_bytes
            return number, chosen

    def give_back(self, number: int) -> None:
        """The worker is gone. Idempotent."""
        self._promised.pop(number, None)

    def promised(self) -> dict[str, int]:
        """What workers that live were promised, in bytes of each card."""
        found: dict[str, int] = {}
        for uuid, size in self._promised.values():
            found[uuid] = found.get(uuid, 0) + size
        return found

    def _room(self, card: GpuDevice) -> int:
        """What can still be promised: others hold what was held when no worker of ours was there."""
        promised = self.promised()
        if card.uuid not in promised:
            self._others[card.uuid] = card.total_bytes - card.free_bytes
        ours = card.total_bytes - self._others.get(card.uuid, 0) - promised.get(card.uuid, 0)
        return min(card.free_bytes, ours)
