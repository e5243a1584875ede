"""Uploads written to disk as they arrive: a raw body, or the `file` of a form."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts.keys import Principal
from sixfold.core.concurrency import fair_threads
from sixfold.core.concurrency.account_limit import AccountLimit
from sixfold.core.provenance.formats import media_types
from sixfold.core.temporary_files import temporary_path
from sixfold.disk_space import SpaceLimitedFile, WritableFile
from sixfold.web import multipart
from sixfold.web.idempotency import IdempotentRequest
from sixfold.web.multipart import Head, PartHandler
from sixfold.web.responses import error_response
from sixfold.web.routing import ErrorFormat
from sixfold.web.services import WebServices

_BLOCK_BYTES = 1 << 20
_FIELD = b"file"
# Uploads that are received are files on disk that no quota counts.
_IN_PROGRESS = AccountLimit(16, "uploads")


class ReceivedUpload(msgspec.Struct):
    """An upload on disk: its path, size, first bytes, and the content type that the client claimed.

    `digest` is the SHA-256 of the whole request; for a form, of all its parts without the boundary.
    `filename` is the file's name in a form, and `fields` has the other fields if requested.
    """

    path: Path
    size: int = 0
    head: bytes = b""
    claimed_type: str = ""
    digest: bytes = b""
    filename: str = ""
    fields: dict[str, str] = {}

    @property
    def content_type(self) -> str:
        """The media type, detected from the first bytes."""
        return media_types.sniff(self.head, self.claimed_type)


class _UploadSink(msgspec.Struct):
    """Counts and hashes data, and writes it in blocks in a thread."""

    received: ReceivedUpload
    file: WritableFile
    block: bytearray = msgspec.field(default_factory=bytearray)

    def take(self, data: bytes | memoryview) -> None:
        self.block += data
        self.received.size += len(data)
        if len(self.received.head) < media_types.HEAD_BYTES:
            self.received.head += bytes(data[: media_types.HEAD_BYTES - len(self.received.head)])

    async def flush(self, *, at_least: int = 1) -> None:
        if len(self.block) >= at_least:
            block, self.block = self.block, bytearray()
            try:
                await asyncio.to_thread(self.file.write, block)
            except OSError as error:
                raise errors.StoreFailed(f"The upload could not be stored: {error.strerror}") from error


async def receive(
    request: Request, path: Path, part: bytes = _FIELD, *, max_fields: int | None = None
) -> ReceivedUpload:
    """Write the upload of a request to `path`: its body, or the form's `part`. The caller removes the file.

    With `max_fields`, a form may have that many fields beside its one file, and they are returned. Raises
    `BadRequest`, `TooLarge`, `TooManyRequests`, and `StoreFailed` before the disk is full.
    """
    with _IN_PROGRESS.running(fair_threads.owner.get()):
        return await _receive(request, path, part, max_fields)


async def receive_once(
    services: WebServices,
    request: Request,
    principal: Principal,
    work: Callable[[ReceivedUpload], Awaitable[Response]],
    *,
    part: bytes = _FIELD,
    error_format: ErrorFormat = error_response,
) -> Response:
    """Return the response of `work` for the upload of a request, once per Idempotency-Key.

    The file is removed afterwards. Raises `BadRequest`, `TooLarge`, `TooManyRequests` and `StoreFailed`.
    """
    async with temporary_path(services.settings.data_dir / "tmp") as path:
        upload = await receive(request, path, part)
        repeatable = IdempotentRequest(principal.replays, upload.digest, error_format)
        return await services.idempotency.run(request, repeatable, lambda _: work(upload))


async def _receive(request: Request, path: Path, part: bytes, max_fields: int | None) -> ReceivedUpload:
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    received = ReceivedUpload(path, claimed_type=kind)
    digest = hashlib.sha256(kind.encode("latin-1", "replace"))
    file = await asyncio.to_thread(path.open, "xb")
    try:
        sink = _UploadSink(received, SpaceLimitedFile(file, path.parent))
        upload = _Upload(sink, part, digest.update, keep_fields=max_fields is not None)
        limits = {} if max_fields is None else {"files": 1, "fields": max_fields}
        is_form = kind == multipart.TYPE
        form = multipart.Splitter(content_type, upload, **limits) if is_form else None
        async for chunk in request.stream():
            if form is None:
                digest.update(chunk)
                sink.take(chunk)
            else:
                form.feed(chunk)
            await sink.flush(at_least=_BLOCK_BYTES)
        if form is not None:
            upload.finish(ended=form.ended)
        await sink.flush()
    finally:
        await asyncio.to_thread(file.close)
    received.digest = digest.digest()
    if not received.size:
        raise errors.BadRequest("The upload is empty")
    return received


class _Upload(PartHandler):
    """Writes one part of a form and passes all bytes to `update_digest`, which hashes them."""

    def __init__(
        self,
        sink: _UploadSink,
        part: bytes,
        update_digest: Callable[[bytes | memoryview], None],
        *,
        keep_fields: bool,
    ) -> None:
        self._sink = sink
        self._part = part.decode()
        self._update_digest = update_digest
        self._keep_fields = keep_fields
        self._field: tuple[str, bytearray] | None = None
        self._is_target = False
        self._has_part = False

    def begin(self, head: Head) -> None:
        self._update_digest(b"--" + b"".join(name + b":" + value + b"\n" for name, value in head.headers))
        is_field = self._keep_fields and head.filename is None
        self._field = (head.name, bytearray()) if is_field else None
        self._is_target = head.name == self._part and not self._has_part and not is_field
        if self._is_target:
            self._has_part = True
            self._sink.received.filename = head.filename or ""
            self._sink.received.claimed_type = head.content_type.partition(";")[0].strip()

    def take(self, data: memoryview) -> None:
        self._update_digest(data)
        if self._is_target:
            self._sink.take(data)
        elif self._field is not None:
            self._field[1].extend(data)

    def end(self) -> None:
        if self._field is not None:
            name, data = self._field
            self._sink.received.fields[name] = multipart.text(bytes(data))

    def finish(self, *, ended: bool) -> None:
        """Raise `BadRequest` if the form is incomplete or lacks the part."""
        if not ended:
            raise errors.BadRequest("Invalid form body: it ends before the closing boundary")
        if not self._has_part:
            raise errors.BadRequest(f"The form has no part named {self._part}")
