"""Who is told what graphs do: clients by their id, each tenant's its own."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sixfold.core.accounts.tenants import Tenant

Message = Mapping[str, Any] | bytes
Messages = tuple[Message, ...]
_MOST_WAITING = 2000
_MOST_WAITING_BYTES = 64 * 2**20
_MOST_REMEMBERED = 1000
_MOST_BYTES = 8 * 2**20  # of the messages of all runs, as JSON
_encode = msgspec.json.Encoder(enc_hook=str).encode
_JPEG, _PNG = 1, 2
MOST_WITHHELD_BYTES = 128 * 2**20  # of the images of one run
_MOST_WITHHELD_OF_ALL = 2**30
_PREVIEW = 1
# What a history tells of a run; the rest was of use while it ran.
_TOLD = frozenset(
    {"execution_start", "execution_cached", "execution_success", "execution_error", "execution_interrupted"}
)


class HubClient:
    """One open socket, and the messages that it has not sent yet, as JSON or pictures; `size` in bytes.

    A client that reads too slowly for their number or size is `behind`: it gets nothing more.
    """

    def __init__(self, client_id: str) -> None:
        self.id = client_id
        self.size = 0
        self.behind = asyncio.Event()
        self._queue: asyncio.Queue[str | bytes | Messages] = asyncio.Queue()
        self._released: deque[Message] = deque()

    def tell(self, message: Message) -> None:
        """Queue a message, unless the client is behind; one alone may be of any size."""
        if self.behind.is_set():
            return
        content = _sent(message)
        waiting = self._queue.qsize()
        if waiting >= _MOST_WAITING or (waiting and self.size + len(content) > _MOST_WAITING_BYTES):
            self.behind.set()
            self._queue, self.size = asyncio.Queue(), 0
            self._released.clear()
            return
        self._queue.put_nowait(content)
        self.size += len(content)

    def release(self, messages: Messages) -> None:
        """Queue what was withheld; it comes at once, so that no client is behind because of it."""
        if not self.behind.is_set():
            self._queue.put_nowait(messages)

    async def next(self) -> str | bytes:
        """The oldest message that was not sent."""
        while not self._released:
            content = await self._queue.get()
            if not isinstance(content, tuple):
                self.size -= len(content)
                return content
            self._released.extend(content)
        return _sent(self._released.popleft())


def _sent(message: Message) -> str | bytes:
    return message if isinstance(message, bytes) else _encode(message).decode()


@dataclass(slots=True)
class _Withheld:
    messages: list[Message] = field(default_factory=list[Message])
    size: int = 0


class WebSocketHub:
    """All open sockets, and what was said of the last runs."""

    def __init__(self) -> None:
        self._clients: defaultdict[Tenant, list[HubClient]] = defaultdict(list)
        self._said: OrderedDict[str, list[list[Any]]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._withheld: dict[str, _Withheld] = {}
        self.withheld_bytes = 0
        self.size = 0

    @contextmanager
    def open(self, tenant: Tenant, client_id: str) -> Generator[HubClient]:
        """A client for as long as its socket is open."""
        client = HubClient(client_id)
        self._clients[tenant].append(client)
        try:
            yield client
        finally:
            self._clients[tenant].remove(client)
            if not self._clients[tenant]:
                del self._clients[tenant]

    def send(self, tenant: Tenant, client_id: str | None, message: Message) -> None:
        """Tell a client that sees a tenant's work; all of them where none is named."""
        for each in {tenant, tenant.whole}:
            self.tell_own(each, client_id, message)

    def tell_own(self, tenant: Tenant, client_id: str | None, message: Message) -> None:
        """Tell a client of exactly this tenant; all of them where none is named."""
        for client in tuple(self._clients.get(tenant, ())):
            if client_id is None or client.id == client_id:
                client.tell(message)

    def withhold(self, prediction_id: str, *messages: Message) -> bool:
        """Keep messages of a run that is not paid yet; False, without keeping them, beyond a limit."""
        size = sum(len(each) for each in messages if isinstance(each, bytes))
        kept = self._withheld.setdefault(prediction_id, _Withheld())
        if kept.size + size > MOST_WITHHELD_BYTES or self.withheld_bytes + size > _MOST_WITHHELD_OF_ALL:
            return False
        kept.messages.extend(messages)
        kept.size += size
        self.withheld_bytes += size
        return True

    def release(self, prediction_id: str, tenant: Tenant, client_id: str | None) -> None:
        """Tell a client, or all of a tenant, what was withheld of a run that is paid."""
        messages = self.forget_withheld(prediction_id)
        for client in tuple(self._clients.get(tenant, ())):
            if messages and (client_id is None or client.id == client_id):
                client.release(messages)

    def forget_withheld(self, prediction_id: str) -> Messages:
        """Forget what was withheld of a run; gives it."""
        kept = self._withheld.pop(prediction_id, _Withheld())
        self.withheld_bytes -= kept.size
        return tuple(kept.messages)

    def remember(self, prediction_id: str, kind: str, data: Mapping[str, Any]) -> None:
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
