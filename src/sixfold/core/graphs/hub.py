"""Who is told what graphs do: clients by their id, each tenant's its own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from sixfold.core.accounts.tenants import Tenant

Message = Mapping[str, Any] | bytes
_MOST_WAITING = 2000
_MOST_REMEMBERED = 1000
_MOST_BYTES = 8 * 2**20  # of the messages of all runs, as JSON
_JPEG, _PNG = 1, 2
_PREVIEW = 1
# What a history tells of a run; the rest was of use while it ran.
_TOLD = frozenset(
    {"execution_start", "execution_cached", "execution_success", "execution_error", "execution_interrupted"}
)


class Client:
    """One open socket; a queue of what it is told. Whoever is far behind loses the oldest."""

    def __init__(self, client_id: str) -> None:
        self.id = client_id
        self.queue: asyncio.Queue[Message] = asyncio.Queue(_MOST_WAITING)

    def tell(self, message: Message) -> None:
        """Say something, as soon as it is heard."""
        if self.queue.full():
            self.queue.get_nowait()
        self.queue.put_nowait(message)


class Hub:
    """All open sockets, and what was said of the last runs."""

    def __init__(self) -> None:
        self._clients: defaultdict[Tenant, list[Client]] = defaultdict(list)
        self._said: OrderedDict[str, list[list[Any]]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self.size = 0

    @contextmanager
    def open(self, tenant: Tenant, client_id: str) -> Generator[Client]:
        """A client for as long as its socket is open."""
        client = Client(client_id)
        self._clients[tenant].append(client)
        try:
            yield client
        finally:
            self._clients[tenant].remove(client)
            if not self._clients[tenant]:
                del self._clients[tenant]

    def tell(self, tenant: Tenant, client_id: str | None, message: Message) -> None:
        """Tell a client of a tenant; all of them where none is named."""
        for client in tuple(self._clients.get(tenant, ())):
            if client_id is None or client.id == client_id:
                client.tell(message)

    def said(self, prediction_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Remember what a history will tell of a run; of each kind the last message.

        The id is the server's own: clients choose the ids of prompts, and may choose another client's.
        """
        if kind in _TOLD:
            messages = self._said.setdefault(prediction_id, [])
            messages[:] = [each for each in messages if each[0] != kind]
            messages.append([kind, dict(data)])
            size = len(msgspec.json.encode(messages, enc_hook=str))
            self.size += size - self._sizes.get(prediction_id, 0)
            self._sizes[prediction_id] = size
            while len(self._said) > 1 and (len(self._said) > _MOST_REMEMBERED or self.size > _MOST_BYTES):
                oldest, _ = self._said.popitem(last=False)
                self.size -= self._sizes.pop(oldest)

    def messages(self, prediction_id: str) -> list[list[Any]]:
        """What was said of a run, as far as it is remembered."""
        return self._said.get(prediction_id, [])


def picture(data: bytes, content_type: str) -> bytes:
    """A picture as ComfyUI sends it over its socket: what it is, its format, its bytes."""
    form = _PNG if content_type == "image/png" else _JPEG
    return _PREVIEW.to_bytes(4) + form.to_bytes(4) + data
