"""The base class of the engines that call a hosted provider, and the state of one of their runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec

from sixfold import errors
from sixfold.clients import provider_client
from sixfold.clients.provider_client import J, ProviderClient, ProviderEndpoint, ProviderLimits, ProviderQueue
from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.core.gpu import run_clock
from sixfold.engines.host_services import HostServices
from sixfold.engines.providers import model_table
from sixfold.engines.providers.image_io import UploadImage
from sixfold.engines.providers.model_table import Override
from sixfold.net.response_memory import ResponseMemory, response_memory

_MAX_LOG_LINES = 100
_MAX_LINE_CHARS = 500


class ProviderRun(msgspec.Struct):
    """State of one run at a provider: its limits, progress and log, and the image and mask to upload.

    `more` are images after the first, for a model that accepts several. `title` is the provider's name in
    messages.
    """

    title: str
    outside: HostServices
    context: Context
    limits: ProviderLimits
    memory: ResponseMemory
    upload: UploadImage | None = None
    mask: UploadImage | None = None
    more: Sequence[UploadImage] = ()
    _fractions: dict[int, float] = {}
    _lines: int = 0

    def progress(self, call: int, fraction: float, calls: int) -> None:
        """Report the progress of one of several calls; raises `Canceled` when the run is canceled."""
        self._fractions[call] = max(fraction, self._fractions.get(call, 0.0))
        self.context.progress(0.02 + 0.9 * sum(self._fractions.values()) / calls)

    def log(self, lines: Sequence[str]) -> None:
        """Add the provider's log lines to the run's log, at most 100 of 500 characters each."""
        for line in lines[: max(0, _MAX_LOG_LINES - self._lines)]:
            self.context.log(line[:_MAX_LINE_CHARS])
        self._lines += len(lines)

    async def queued(
        self, queue: ProviderQueue[J], start: Awaitable[J], report: Callable[[float], None]
    ) -> J:
        """Submit a job, log and report its progress until it ends, and return the final job.

        The time in the provider's queue is not part of the run.
        """
        lines_logged, queued = 0, True
        loop = asyncio.get_running_loop()
        began = loop.time()

        def log(job: J) -> None:
            nonlocal lines_logged, queued
            queued = queued and job.state == "queued"
            if queued:
                run_clock.exclude(began, loop.time())
            self.log(job.lines[lines_logged:])
            lines_logged = max(lines_logged, len(job.lines))
            if not job.ended:
                report(0.05 if job.state == "queued" else 0.3)

        return await provider_client.run_queued(queue, start, self.limits, log)

    def source(self) -> UploadImage:
        """Return the source image; raises `EngineError` for a task without a source image."""
        if self.upload is None:
            raise EngineError("A source image is required.")
        return self.upload

    def files(self, fields: Mapping[str, str]) -> Mapping[str, UploadImage]:
        """Return the files to upload by the provider's names of their inputs; raises `EngineError`."""
        files = {fields["source"]: self.source()} if "source" in fields else {}
        if self.mask is not None:
            files[fields["mask"]] = self.mask
        return files

    @asynccontextmanager
    async def time_limit(self) -> AsyncGenerator[None, None]:
        """Raise `EngineError` when the block runs longer than `limits.whole_seconds`."""
        try:
            async with asyncio.timeout(self.limits.whole_seconds):
                yield
        except TimeoutError:
            seconds = self.limits.whole_seconds
            raise EngineError(f"{self.title} did not finish within {seconds:g} seconds.") from None


class ProviderEngine:
    """Base class for an engine that serves one capability through one provider.

    Options: `route` (a row of `providers.toml`), `base_url` of a server with the same API, `limits` (the
    fields of `ProviderLimits`), and the fields of `Override`, which replace values of the row.
    """

    version = "1"
    provider: ClassVar[ProviderEndpoint]

    def __init__(
        self,
        outside: HostServices,
        *,
        route: str,
        base_url: str = "",
        limits: Mapping[str, Any] | None = None,
        **over: Any,
    ) -> None:
        self._outside = outside
        self._route = model_table.route(self.provider.spec.name, route, Override(**over))
        self._base_url = base_url
        self._limits = ProviderLimits(**(limits or {}))
        self.name = self._route.name

    async def run(self, task: Task, context: Context) -> Result:
        """Run a task; its large responses count towards the memory of all runs until it ends."""
        try:
            with response_memory(self._base_url or self.provider.spec.base_url) as memory:
                return await self._run(task, context, self._client(memory))
        except errors.TooManyRequests as error:
            raise EngineError(f"{error.message}.") from error

    async def _run(self, task: Task, context: Context, client: ProviderClient) -> Result:
        """Run a task with a client that has the current key."""
        raise NotImplementedError

    def _client(self, memory: ResponseMemory) -> ProviderClient:
        client = ProviderClient(
            self._outside.client,
            self.provider,
            self._outside.key(self.provider.spec.key),
            base_url=self._base_url,
            limits=self._limits,
            memory=memory,
        )
        client.names = self._route.names()
        return client

    def _start(self, context: Context, client: ProviderClient) -> ProviderRun:
        return ProviderRun(self.provider.spec.title, self._outside, context, self._limits, client.memory)

    async def close(self) -> None:
        """Do nothing: the connections belong to the server."""
