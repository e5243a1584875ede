"""Vectors of passages: made beside the writing, kept in the database, resumed after a restart."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

_QUESTIONS_KEPT = 512


class Model(Protocol):
    """Something that turns texts into vectors of one length."""

    @property
    def name(self) -> str:
        """Its name and version: other vectors, another name."""
        ...

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Vectors of length 1, each as 32-bit floats; may be called from any thread, one call at a time."""
        ...


class Questions:
    """The vectors of questions, the last ones remembered."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known: OrderedDict[str, bytes] = OrderedDict()

    async def vector(self, text: str) -> bytes:
        """The vector of a question."""
        known = self._known.get(text)
        if known is None:
            known = (await asyncio.to_thread(self._model.embed, [text]))[0]
            self._known[text] = known
            if len(self._known) > _QUESTIONS_KEPT:
                self._known.popitem(last=False)
        return known
