"""Server for GGUF models with llama.cpp, which are loaded on demand and unloaded when idle."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Callable, Mapping

import msgspec

from sixfold.clients.chat.completions import Completions
from sixfold.clients.chat.forwarded.texts import TextCompletions
from sixfold.clients.chat.llama.files import GgufModel
from sixfold.clients.chat.llama.options import GgufOptions
from sixfold.clients.chat.llama.processes import ProcessPool
from sixfold.clients.chat.transport import Transport
from sixfold.core.gateway.capabilities import CHAT, EMBEDDINGS, VISION, ServedModel, guess_model
from sixfold.core.gateway.ports import (
    TEXT_COMPLETIONS,
    UpstreamFailure,
    UpstreamRejection,
    UpstreamStream,
    WireProtocol,
    read_all,
)
from sixfold.core.gpu.arbiter import GpuAccess

PACKAGE = "xllamacpp"
_UNSUPPORTED_MEDIA = re.compile(r"(image|audio|video) input is not supported")
# Invalid requests that llama.cpp reports as internal errors.
_REQUEST_ERRORS = re.compile(rf"{_UNSUPPORTED_MEDIA.pattern}|Invalid base64|Failed to parse")
_JSON_ERROR_PREFIX = re.compile(r"\[json\.exception[^]]*\] ")
_UNSUPPORTED_MESSAGES = {
    "image": "This model does not accept images: there is no projector (mmproj-….gguf) beside its file",
    "audio": "This model does not accept audio: no projector (mmproj-….gguf) beside its file supports it",
    "video": "This model does not accept video: there is no projector (mmproj-….gguf) beside its file",
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


_decode_request = msgspec.json.Decoder(_PendingRequest).decode
_decode_error = msgspec.json.Decoder(_RequestRefused).decode


class _Wire(Completions):
    """Chat completions as llama.cpp implements them."""

    def parse_error(self, body: bytes) -> UpstreamRejection:
        """Parse a rejection; messages about chat length and unsupported media are replaced."""
        try:
            error = _decode_error(body).error
        except msgspec.MsgspecError:
            return super().parse_error(body)
        if error.type == "exceed_context_size_error":
            tokens, context = error.n_prompt_tokens, error.n_ctx
            message = f"This conversation has {tokens} tokens, and the model has a context of {context}"
            return UpstreamRejection(message, "messages", too_long=True)
        match = _UNSUPPORTED_MEDIA.match(error.message)
        if match is not None:
            return UpstreamRejection(_UNSUPPORTED_MESSAGES[match[1]], "messages")
        if not _REQUEST_ERRORS.match(error.message):
            return super().parse_error(body)
        return UpstreamRejection(_JSON_ERROR_PREFIX.sub("", error.message).partition("\n")[0][:300])


class _TextWire(_Wire, TextCompletions):
    pass


_WIRE, _TEXT_WIRE = _Wire(), _TextWire()


class GgufServer:
    """Chat server for local GGUF models, run by llama.cpp processes.

    It serves a `[gateway.upstreams.NAME]` of the kind `gguf`, or the models of `sixfold engines add chat`.
    """

    local = True
    in_local_network = True
    reads_documents = False
    discovered = False
    price_table = ""
    outage = None

    def __init__(
        self,
        name: str,
        find: Callable[[], Mapping[str, GgufModel]],
        options: GgufOptions,
        transport: Transport,
    ) -> None:
        self.name = name
        self.pool = ProcessPool(options)
        # Whether llama.cpp may use a GPU.
        self.uses_gpu = options.gpu_layers != 0
        self.in_flight = 0
        self.gpu: GpuAccess | None = None
        self._context = options.context
        self._find = find
        self._transport = transport
        self.files: Mapping[str, GgufModel] = {}
        self._installed = importlib.util.find_spec(PACKAGE) is not None

    @property
    def ready(self) -> bool:
        """Whether llama.cpp is installed and a model is available."""
        return self._installed and bool(self.files)

    def wire(self, protocol: str) -> WireProtocol:
        return _TEXT_WIRE if protocol == TEXT_COMPLETIONS else _WIRE

    def serves(self, model: str) -> bool:
        return model in self.files

    def models(self) -> tuple[str, ...]:
        return tuple(self.files)

    def listing(self) -> tuple[ServedModel, ...]:
        """Return the models; those with a projector accept images."""
        return tuple(self.describe(name) for name in self.files)

    def describe(self, model: str) -> ServedModel:
        guess = guess_model(model)
        if not guess.chat or model not in self.files:
            return guess
        able = frozenset({CHAT, VISION} if self.files[model].projector else {CHAT})
        return ServedModel(model, able, stated=True, context=self._context, lacks=frozenset({EMBEDDINGS}))

    async def refresh(self) -> None:
        """Read the files again."""
        self.files = await asyncio.to_thread(self._find)

    async def delete(self, path: str) -> int:
        """Raise `UpstreamFailure`, as the model's process does not store responses."""
        raise UpstreamFailure(f"cannot delete {path}")

    async def open(
        self, wire: WireProtocol, path: str, body: bytes, headers: Mapping[str, str], *, stream: bool
    ) -> UpstreamStream:
        """POST a body to the model's process, starting it if needed; raises `UpstreamFailure`."""
        name = _decode_request(body).model
        model = self.files.get(name)
        if model is None:
            raise UpstreamFailure(f"no longer has the model {name}")
        running, release = await self.pool.enter(name, model)
        own_headers = {"Content-Type": "application/json", "Authorization": f"Bearer {running.key}"}
        try:
            response = await self._transport.post(f"{running.url}/v1{path}", own_headers, body, stream=stream)
            if response.status != 500:
                return _HeldSlot(response, release)
            error_body = await _read_and_close(response)
        except BaseException:
            release()
            raise
        release()
        return _ServerReply(_status_of(error_body), error_body)

    async def aclose(self) -> None:
        await self.pool.aclose()


async def _read_and_close(response: UpstreamStream) -> bytes:
    try:
        return await read_all(response)
    finally:
        await response.aclose()


def _status_of(body: bytes) -> int:
    """Return the status of an error response: 400 for an error of the request, or else 500."""
    try:
        return 400 if _REQUEST_ERRORS.match(_decode_error(body).error.message) else 500
    except msgspec.MsgspecError:
        return 500


class _ServerReply:
    """A response whose body is in memory."""

    retry_after = ""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


class _HeldSlot:
    """A response whose process is in use until the response is closed."""

    def __init__(self, response: UpstreamStream, release: Callable[[], None]) -> None:
        self._response = response
        self._release: Callable[[], None] | None = release
        self.status = response.status
        self.retry_after = response.retry_after
        self.read = response.read

    async def aclose(self) -> None:
        """Close the connection and release the process; llama.cpp then stops generating."""
        release, self._release = self._release, None
        try:
            await self._response.aclose()
        finally:
            if release is not None:
                release()
