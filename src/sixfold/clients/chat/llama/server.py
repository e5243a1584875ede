"""Serves GGUF models with llama.cpp: loaded on demand, unloaded when idle."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Callable, Mapping

import msgspec

from sixfold.clients.chat.completions import Completions
from sixfold.clients.chat.llama.files import GgufModel
from sixfold.clients.chat.llama.options import GgufOptions
from sixfold.clients.chat.llama.processes import ProcessPool
from sixfold.clients.chat.transport import Transport
from sixfold.core.gateway.capabilities import CHAT, VISION, ServedModel, guess_model
from sixfold.core.gateway.ports import UpstreamFailure, UpstreamRejection, UpstreamStream, WireProtocol

PACKAGE = "xllamacpp"
_SENSELESS = re.compile(r"(image|audio|video) input is not supported")
# Errors of the request that llama.cpp reports as internal errors.
_CALLERS = re.compile(rf"{_SENSELESS.pattern}|Invalid base64|Failed to parse")
_INNER = re.compile(r"\[json\.exception[^]]*\] ")
_WITHOUT = {
    "image": "This model sees no pictures: no projector (mmproj-….gguf) lies beside its file",
    "audio": "This model hears no sound: no projector (mmproj-….gguf) beside its file is made for it",
    "video": "This model sees no films: no projector (mmproj-….gguf) lies beside its file",
}


class _PendingRequest(msgspec.Struct):
    model: str


class _OverCapacity(msgspec.Struct):
    type: str = ""
    message: str = ""
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class _RequestRefused(msgspec.Struct):
    error: _OverCapacity


_asked = msgspec.json.Decoder(_PendingRequest).decode
_refused = msgspec.json.Decoder(_RequestRefused).decode


class _Wire(Completions):
    """Chat completions as llama.cpp implements them."""

    def parse_error(self, body: bytes) -> UpstreamRejection:
        """Return the rejection, with own messages for too long chats and for unsupported media."""
        try:
            told = _refused(body).error
        except msgspec.MsgspecError:
            return super().parse_error(body)
        if told.type == "exceed_context_size_error":
            tokens, context = told.n_prompt_tokens, told.n_ctx
            said = f"This conversation has {tokens} tokens, and the model has a context of {context}"
            return UpstreamRejection(said, "messages", too_long=True)
        sense = _SENSELESS.match(told.message)
        if sense is not None:
            return UpstreamRejection(_WITHOUT[sense[1]], "messages")
        if not _CALLERS.match(told.message):
            return super().parse_error(body)
        return UpstreamRejection(_INNER.sub("", told.message).partition("\n")[0][:300])


_WIRE = _Wire()


class GgufServer:
    """A `[gateway.upstreams.NAME]` of the kind `gguf`, or the models of `sixfold engines add chat`."""

    local = True
    in_local_network = True
    discovered = False

    def __init__(
        self,
        name: str,
        find: Callable[[], Mapping[str, GgufModel]],
        options: GgufOptions,
        transport: Transport,
    ) -> None:
        self.name = name
        self.house = ProcessPool(options)
        self._find = find
        self._transport = transport
        self.files: Mapping[str, GgufModel] = {}
        self._there = importlib.util.find_spec(PACKAGE) is not None

    @property
    def ready(self) -> bool:
        """Whether llama.cpp is installed and there is a model."""
        return self._there and bool(self.files)

    def wire(self, protocol: str) -> WireProtocol:
        return _WIRE

    def serves(self, model: str) -> bool:
        return model in self.files

    def models(self) -> tuple[str, ...]:
        return tuple(self.files)

    def listing(self) -> tuple[ServedModel, ...]:
        """Return the models; one with a projector accepts images."""
        return tuple(_described(name, model) for name, model in self.files.items())

    async def refresh(self) -> None:
        """Read the files again."""
        self.files = await asyncio.to_thread(self._find)

    async def open(
        self, wire: WireProtocol, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> UpstreamStream:
        """POST a body to the model's process, starting it if needed; raises `UpstreamFailure`."""
        name = _asked(body).model
        model = self.files.get(name)
        if model is None:
            raise UpstreamFailure(f"has no model {name} any more")
        running, leave = await self.house.enter(name, model)
        ours = {"Content-Type": "application/json", "Authorization": f"Bearer {running.key}"}
        try:
            opened = await self._transport.post(f"{running.url}/v1{path}", ours, body, stream=stream)
            if opened.status != 500:
                return _HeldSlot(opened, leave)
            told = await _whole(opened)
        except BaseException:
            leave()
            raise
        leave()
        return _ServerReply(_status_of(told), told)

    async def aclose(self) -> None:
        """Stop the processes."""
        await self.house.aclose()


async def _whole(opened: UpstreamStream) -> bytes:
    try:
        return await opened.read_all()
    finally:
        await opened.aclose()


def _status_of(told: bytes) -> int:
    """Return 400 if a response of 500 reports an error of the request."""
    try:
        return 400 if _CALLERS.match(_refused(told).error.message) else 500
    except msgspec.MsgspecError:
        return 500


class _ServerReply:
    """A response that was read already."""

    retry_after = ""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._left = body

    async def read(self) -> bytes:
        told, self._left = self._left, b""
        return told

    async def read_all(self) -> bytes:
        return await self.read()

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


class _HeldSlot:
    """A response; its process is in use until it is closed."""

    def __init__(self, opened: UpstreamStream, leave: Callable[[], None]) -> None:
        self._opened = opened
        self._leave: Callable[[], None] | None = leave
        self.status = opened.status
        self.retry_after = opened.retry_after
        self.read = opened.read
        self.read_all = opened.read_all

    async def aclose(self) -> None:
        """Release the connection, on which llama.cpp stops generating, and the process."""
        leave, self._leave = self._leave, None
        try:
            await self._opened.aclose()
        finally:
            if leave is not None:
                leave()


def _described(name: str, model: GgufModel) -> ServedModel:
    named = guess_model(name)
    if not named.chat:
        return named
    return ServedModel(name, frozenset({CHAT, VISION} if model.projector else {CHAT}), stated=True)
