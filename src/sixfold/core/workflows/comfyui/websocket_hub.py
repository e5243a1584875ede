"""The websocket clients of ComfyUI, by tenant and client id, and the messages sent to them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from sixfold.core.accounts.tenants import Tenant

Message = Mapping[str, Any] | bytes
# A message as it is sent. All clients that receive it share one copy.
Content = str | bytes
# Four messages for each node of a graph of 5,000 nodes: a graph of texts sends them without a pause.
MAX_QUEUED = 20_000
_MAX_QUEUED_BYTES = 64 * 2**20
MAX_QUEUED_OF_ALL = 256 * 2**20
_MAX_RUNS = 1000
# Maximum JSON size of the stored messages of all runs.
_MAX_BYTES = 8 * 2**20
_encode = msgspec.json.Encoder(enc_hook=str).encode
_JPEG, _PNG = 1, 2
MAX_WITHHELD_BYTES = 128 * 2**20  # per run
_MAX_WITHHELD_OF_ALL = 2**30
_PREVIEW = 1
# The messages of a run that the history contains.
_HISTORY_TYPES = frozenset(
    {"execution_start", "execution_cached", "execution_success", "execution_error", "execution_interrupted"}
)


class HubClient:
    """An open socket and its queue of unsent messages; `size` is in bytes, without those of paid runs.

    A client that reads too slowly for the queue's limits is `behind` and receives no more messages. `unsent`
    are the bytes of all messages that were not sent, and `count` is called with each change of it.
    """

    def __init__(self, client_id: str, count: Callable[[int], None] = lambda _more: None) -> None:
        self.id = client_id
        self.size = self.unsent = 0
        self.behind = asyncio.Event()
        self._count = count
        self._queue: asyncio.Queue[tuple[Content, bool]] = asyncio.Queue()

    def send(self, message: Message) -> None:
        """Queue a message, unless the client is behind; a single message may be of any size."""
        self.put(_content(message))

    def put(self, content: Content) -> None:
        """Queue the content of a message."""
        waiting = self._queue.qsize()
        if waiting >= MAX_QUEUED or (waiting and self.size + len(content) > _MAX_QUEUED_BYTES):
            self.fall_behind()
        else:
            self._put(content, counts=True)

    def release(self, contents: Sequence[Content]) -> None:
        """Queue withheld messages, which do not count against the queue's limits."""
        for content in contents:
            self._put(content, counts=False)

    def fall_behind(self) -> None:
        """Discard the queue, and end the connection."""
        self.behind.set()
        self._queue, self.size = asyncio.Queue(), 0
        self._resize(-self.unsent)

    async def next(self) -> Content:
        """Return the oldest unsent message."""
        content, counts = await self._queue.get()
        # A client that has fallen behind has no unsent messages left.
        if not self.behind.is_set():
            self.size -= len(content) if counts else 0
            self._resize(-len(content))
        return content

    def _put(self, content: Content, *, counts: bool) -> None:
        if not self.behind.is_set():
            self._queue.put_nowait((content, counts))
            self.size += len(content) if counts else 0
            self._resize(len(content))

    def _resize(self, more: int) -> None:
        self.unsent += more
        self._count(more)


def _content(message: Message) -> Content:
    return message if isinstance(message, bytes) else _encode(message).decode()


class _Withheld(msgspec.Struct):
    contents: list[Content] = []
    size: int = 0


class WebSocketHub:
    """All open sockets, and the stored messages of the latest runs."""

    def __init__(self) -> None:
        self._clients: defaultdict[Tenant, list[HubClient]] = defaultdict(list)
        self._remembered: OrderedDict[str, list[list[Any]]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._withheld: dict[str, _Withheld] = {}
        self.withheld_bytes = 0
        self.queued_bytes = 0
        self.size = 0

    @contextmanager
    def open(self, tenant: Tenant, client_id: str) -> Generator[HubClient]:
        """Register a client for as long as its socket is open."""
        client = HubClient(client_id, self._count)
        self._clients[tenant].append(client)
        try:
            yield client
        finally:
            client.fall_behind()
            self._clients[tenant].remove(client)
            if not self._clients[tenant]:
                del self._clients[tenant]

    def send(self, tenant: Tenant, client_id: str | None, message: Message) -> None:
        """Send a message to a client that sees the tenant's work, or to all if `client_id` is None."""
        self._send({tenant, tenant.whole}, client_id, message)

    def send_to_tenant(self, tenant: Tenant, client_id: str | None, message: Message) -> None:
        """Send a message to a client of exactly this tenant, or to all if `client_id` is None."""
        self._send({tenant}, client_id, message)

    def _send(self, tenants: Iterable[Tenant], client_id: str | None, message: Message) -> None:
        clients = [client for tenant in tenants for client in self._receivers(tenant, client_id)]
        if not clients:
            return
        content = _content(message)
        for client in clients:
            client.put(content)
        self._limit_queues()

    def _receivers(self, tenant: Tenant, client_id: str | None) -> list[HubClient]:
        clients = self._clients.get(tenant, ())
        return [client for client in clients if client_id is None or client.id == client_id]

    def _count(self, more: int) -> None:
        self.queued_bytes += more

    def _limit_queues(self) -> None:
        """Disconnect clients with the most unsent bytes, of the tenant that has the most in total."""
        while self.queued_bytes > MAX_QUEUED_OF_ALL:
            worst = max(self._clients.values(), key=lambda clients: sum(each.unsent for each in clients))
            max(worst, key=lambda client: client.unsent).fall_behind()

    def withhold(self, prediction_id: str, *messages: Message) -> bool:
        """Store messages of an unpaid run; return False, without storing them, above a limit."""
        contents = [_content(message) for message in messages]
        size = sum(map(len, contents))
        entry = self._withheld.setdefault(prediction_id, _Withheld())
        if entry.size + size > MAX_WITHHELD_BYTES or self.withheld_bytes + size > _MAX_WITHHELD_OF_ALL:
            return False
        entry.contents.extend(contents)
        entry.size += size
        self.withheld_bytes += size
        return True

    def release(self, prediction_id: str, tenant: Tenant, client_id: str | None) -> None:
        """Send the withheld messages of a paid run to a client, or to all clients of the tenant."""
        contents = self.forget_withheld(prediction_id)
        for client in self._receivers(tenant, client_id):
            client.release(contents)
        self._limit_queues()

    def forget_withheld(self, prediction_id: str) -> Sequence[Content]:
        """Remove and return the withheld messages of a run."""
        entry = self._withheld.pop(prediction_id, _Withheld())
        self.withheld_bytes -= entry.size
        return entry.contents

    def remember(self, prediction_id: str, kind: str, data: Mapping[str, Any]) -> None:
        """Store a message for the history of a run, replacing an earlier message of the same kind.

        The key is the prediction id, because clients choose prompt ids and may choose the id of another
        client.
        """
        if kind in _HISTORY_TYPES:
            messages = self._remembered.setdefault(prediction_id, [])
            messages[:] = [message for message in messages if message[0] != kind]
            messages.append([kind, dict(data)])
            size = len(_encode(messages))
            self.size += size - self._sizes.get(prediction_id, 0)
            self._sizes[prediction_id] = size
            while len(self._remembered) > 1 and (len(self._remembered) > _MAX_RUNS or self.size > _MAX_BYTES):
                oldest, _ = self._remembered.popitem(last=False)
                self.size -= self._sizes.pop(oldest)

    def messages(self, prediction_id: str) -> list[list[Any]]:
        return self._remembered.get(prediction_id, [])


def image_message(data: bytes, content_type: str) -> bytes:
    """Return an image in the binary format of ComfyUI's socket: event type, image format, bytes."""
    form = _PNG if content_type == "image/png" else _JPEG
    return _PREVIEW.to_bytes(4) + form.to_bytes(4) + data
