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
_MOST_WAITING_BYTES = 64 * 2**20
_MOST_REMEMBERED = 1000
_MOST_BYTES = 8 * 2**20  # of the messages of all runs, as JSON
_encode = msgspec.json.Encoder(enc_hook=str).encode
_JPEG, _PNG = 1, 2
_PREVIEW = 1
# What a history tells of a run; the rest was of use while it ran.
_TOLD = frozenset(
    {"execution_start", "execution_cached", "execution_success", "execution_error", "execution_interrupted"}
)


class Client:
    """One open socket, and the messages that it has not sent yet, as JSON or pictures; `size` in bytes.

    A client that reads too slowly for their number or size is `behind`: it gets nothing more.
    """

    def __init__(self, client_id: str) -> None:
        self.id = client_id
        self.size = 0
        self.behind = asyncio.Event()
        self._queue: asyncio.Queue[str | bytes] = asyncio.Queue()

    def tell(self, message: Message) -> None:
        """Queue a message, unless the client is behind; one alone may be of any size."""
        if self.behind.is_set():
            return
        content = message if isinstance(message, bytes) else _encode(message).decode()
        waiting = self._queue.qsize()
        if waiting >= _MOST_WAITING or (waiting and self.size + len(content) > _MOST_WAITING_BYTES):
            self.behind.set()
            self._queue, self.size = asyncio.Queue(), 0
            return
        self._queue.put_nowait(content)
        self.size += len(content)

    async def next(self) -> str | bytes:
        """The oldest message that was not sent."""
        content = await self._queue.get()
        self.size -= len(content)
        return content


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
        """Tell a client that sees a tenant's work; all of them where none is named."""
        for each in {tenant, tenant.whole}:
            self.tell_own(each, client_id, message)

    def tell_own(self, tenant: Tenant, client_id: str | None, message: Message) -> None:
        """Tell a client of exactly this tenant; all of them where none is named."""
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
            size = len(_encode(messages))
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
