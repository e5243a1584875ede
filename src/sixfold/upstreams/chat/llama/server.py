"""Models of GGUF files as a model server among others: loaded when one is asked, and let go of when idle."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping

import msgspec

from sixfold.core.relay.ports import Broken, Stream, Wire
from sixfold.upstreams.chat.completions import Completions
from sixfold.upstreams.chat.llama.files import Model
from sixfold.upstreams.chat.llama.options import Options
from sixfold.upstreams.chat.llama.running import House
from sixfold.upstreams.chat.transport import Transport

PACKAGE = "xllamacpp"


class _Asked(msgspec.Struct):
    model: str


class _Excess(msgspec.Struct):
    type: str = ""
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class _Refused(msgspec.Struct):
    error: _Excess


_asked = msgspec.json.Decoder(_Asked).decode
_refused = msgspec.json.Decoder(_Refused).decode


class _Wire(Completions):
    """Chat completions as llama.cpp answers them."""

    def refusal(self, body: bytes) -> tuple[str, str]:
        """What it says, but for a conversation that is too long."""
        try:
            told = _refused(body).error
        except msgspec.MsgspecError:
            return super().refusal(body)
        if told.type != "exceed_context_size_error":
            return super().refusal(body)
        tokens, context = told.n_prompt_tokens, told.n_ctx
        return f"This conversation has {tokens} tokens, and the model has a context of {context}", "messages"


_WIRE = _Wire()


class GgufServer:
    """One `[gateway.upstreams.NAME]` of the kind `gguf`, or what was added by `sixfold engines add chat`."""

    local = True

    def __init__(
        self, name: str, find: Callable[[], Mapping[str, Model]], options: Options, transport: Transport
    ) -> None:
        self.name = name
        self.house = House(options)
        self._find = find
        self._transport = transport
        self.files: Mapping[str, Model] = {}
        self._there = importlib.util.find_spec(PACKAGE) is not None

    @property
    def ready(self) -> bool:
        """Whether llama.cpp is installed and there is a model."""
        return self._there and bool(self.files)

    def wire(self, asked: str) -> Wire:
        """The one protocol that it speaks."""
        return _WIRE

    def serves(self, model: str) -> bool:
        """Whether its file is there."""
        return model in self.files

    def models(self) -> tuple[str, ...]:
        """Those whose files are there."""
        return tuple(self.files)

    async def refresh(self) -> None:
        """Look at the files again."""
        self.files = await asyncio.to_thread(self._find)

    async def open(
        self, wire: Wire, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> Stream:
        """POST a body to the model's process, which is started where it is not there; raises `Broken`."""
        name = _asked(body).model
        model = self.files.get(name)
        if model is None:
            raise Broken(f"has no model {name} any more")
        running, leave = await self.house.enter(name, model)
        ours = {"Content-Type": "application/json", "Authorization": f"Bearer {running.key}"}
        try:
            opened = await self._transport.post(f"{running.url}/v1{path}", ours, body, stream=stream)
        except BaseException:
            leave()
            raise
        return _Held(opened, leave)

    async def aclose(self) -> None:
        """End its processes."""
        await self.house.aclose()


class _Held:
    """An answer; its process stays until it is closed."""

    def __init__(self, opened: Stream, leave: Callable[[], None]) -> None:
        self._opened = opened
        self._leave: Callable[[], None] | None = leave
        self.status = opened.status
        self.retry_after = opened.retry_after
        self.read = opened.read
        self.whole = opened.whole

    async def aclose(self) -> None:
        """Let go of the connection, by which llama.cpp stops what it was saying, and of the process."""
        leave, self._leave = self._leave, None
        try:
            await self._opened.aclose()
        finally:
            if leave is not None:
                leave()
