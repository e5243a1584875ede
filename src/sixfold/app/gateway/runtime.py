"""Construction of a server's gateway from the settings, and the refresh of model servers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import time
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from sixfold.clients.chat.llama import building as llama
from sixfold.clients.chat.servers import PROBE_SECONDS, ModelServer, ModelServers, ServerStatus
from sixfold.clients.chat.transports.scheme import SchemeTransport
from sixfold.clients.hosts import ProbeHosts
from sixfold.core.accounts import connections
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.limits import rate_limits
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.concurrency import background, loaded_objects
from sixfold.core.concurrency.background import Work
from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.core.database import Database
from sixfold.core.failpoints import Failpoints
from sixfold.core.gateway import policy as policies
from sixfold.core.gateway.attachments.media_inlining import Fetch, MediaInliner
from sixfold.core.gateway.attempts import FailoverClient
from sixfold.core.gateway.capabilities import CHAT, VISION
from sixfold.core.gateway.content_log.recorder import ContentRecorder
from sixfold.core.gateway.content_log.storage import ContentLog
from sixfold.core.gateway.conversations.conversations import ConversationStore
from sixfold.core.gateway.conversations.response_tasks import ResponseTasks
from sixfold.core.gateway.conversations.responses import ResponseStore
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.guardrails.hooks import GuardrailHooks
from sixfold.core.gateway.guardrails.service import GuardrailService
from sixfold.core.gateway.health import HealthTracker
from sixfold.core.gateway.policy import GatewayPolicy, UpstreamRow
from sixfold.core.gateway.ports import GatewayRequest, Upstream
from sixfold.core.gateway.pricing.price_book import PriceBook
from sixfold.core.gateway.routing import ModelRouter, outage_clauses
from sixfold.core.media.media import MediaService
from sixfold.settings import InvalidSetting, Settings
from sixfold.store.secrets import provider_setting

if TYPE_CHECKING:
    from sixfold.net.tracing import Tracing

_PRICES = Path(__file__).parents[2] / "data" / "gateway_prices.toml"
_REFRESH_SECONDS, SWEEP_SECONDS = 15.0, 60.0
# Maximum seconds that the start waits for the first refresh; slower servers appear a little later.
_FIRST_REFRESH_SECONDS = 0.3


class GatewayRuntime:
    """The gateway with its background tasks."""

    def __init__(
        self,
        gateway: Gateway,
        open_servers: Callable[[GatewayPolicy], ModelServers],
        responses: ResponseStore,
        conversations: ConversationStore,
        tracing: Tracing | None,
    ) -> None:
        self.gateway = gateway
        self.responses = responses
        self.conversations = conversations
        self.response_tasks = ResponseTasks()
        self.tracing = tracing
        self.watchers = [] if tracing is None else [tracing.record_run]
        self._open_servers = open_servers
        self._servers = open_servers(gateway.policy)
        gateway.router.reconfigure(self._servers, gateway.policy.aliases)
        self._tasks: list[asyncio.Task[None]] = []

    def attach_guardrails(self, hooks: GuardrailHooks, database: Database, master: bytes) -> None:
        """Apply guardrails to all calls, and log their contents; `master` is the server's key."""
        gateway = self.gateway
        gateway.contents = ContentRecorder(ContentLog(database, master))
        gateway.guardrails = GuardrailService(
            database, hooks, lambda: gateway.policy.guardrail, lambda: gateway.boot
        )

    async def start(self, boot: str) -> None:
        """Release the holds of dead servers, and start refreshing the model servers."""
        self.gateway.boot = boot
        await self.gateway.sweep()
        refreshing = asyncio.create_task(self._refresh_loop(), name="model-servers")
        sweeping = asyncio.create_task(
            background.repeat(SWEEP_SECONDS, self._sweep_steps()), name="gateway-sweep"
        )
        self._tasks = [refreshing, sweeping]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_REFRESH_SECONDS):
                await self._servers.refreshed.wait()

    async def stop(self) -> None:
        """Store the responses of chats, settle all finished calls, and close the connections."""
        await self.response_tasks.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.gateway.drain()
        await self._servers.aclose()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)

    async def reconfigure(self, policy: GatewayPolicy, prices: PriceBook) -> None:
        """Apply a changed policy and prices; new servers are probed before they replace old ones."""
        old_rows = {row.name: row for row in self.gateway.policy.servers}
        new_rows = {row.name: row for row in policy.servers}
        changed = [name for name in old_rows | new_rows if old_rows.get(name) != new_rows.get(name)]
        if changed:
            servers = self._open_servers(policy)
            # Before the start there are no requests that need the servers.
            if self._tasks:
                await servers.refresh()
            self._servers = servers
        for name in changed:
            self.gateway.health.forget(name)
        self.gateway.router.reconfigure(self._servers, policy.aliases)
        self.gateway.reconfigure(policy, prices)
        if self.tracing is not None:
            self.tracing.kinds = {row.name: row.kind for row in policy.servers}
        self.responses.reconfigure(policy)
        self.conversations.reconfigure(policy)

    async def probe(self, row: UpstreamRow) -> tuple[tuple[str, ...], str]:
        """Return the models that a server lists, and the reason in one sentence if it does not respond."""
        servers = self._open_servers(replace(GatewayPolicy(), servers=(row,)))
        server = next(server for server in servers() if server.name == row.name)
        assert isinstance(server, ModelServer)  # noqa: S101 - rows of model files are not probed
        return await server.probe(PROBE_SECONDS)

    def standing(self) -> EngineStatus:
        """Return whether a chat model is available."""
        return _standing(self.gateway.router, CHAT)

    def vision_standing(self) -> EngineStatus:
        """Return whether a chat model that accepts images is available."""
        return _standing(self.gateway.router, VISION)

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Return the status of every model server as of the last refresh."""
        return self._servers.statuses()

    def model_servers(self) -> Sequence[Upstream]:
        """Return every model server, including those that are absent."""
        return self._servers()

    async def refresh(self) -> None:
        """Refresh the model servers now."""
        await self._servers.refresh()

    async def wait_refreshed(self) -> None:
        await self._servers.refreshed.wait()

    async def _refresh_loop(self) -> None:
        while True:
            await background.attempt("refresh of model servers", self._servers.refresh)
            await asyncio.sleep(_REFRESH_SECONDS)

    def _sweep_steps(self) -> dict[str, Work]:
        steps: dict[str, Work] = {
            "sweep of gateway calls": self.gateway.sweep,
            "sweep of responses": self.responses.sweep,
        }
        if self.gateway.contents is not None:
            steps["sweep of logged contents"] = self.gateway.contents.log.sweep
        return steps


def build(settings: Settings, database: Database, media: MediaService) -> GatewayRuntime:
    """Return the gateway of these settings; raises `InvalidSetting`."""
    table: Mapping[str, Any] = settings.tables.get("gateway", {})
    with InvalidSetting.of(ValueError):
        policy = policies.parse(table)
        prices = price_book(settings)
        tracing = _tracing(settings.otel_endpoint)
        open_servers = _opener(settings, policy, tracing)
    health = HealthTracker(time.monotonic)
    router = ModelRouter(tuple, policy.aliases, health)
    limiter = rate_limits.build(database, "tokens", shared=settings.is_shared)
    memory = MemoryLimit(
        settings.response_memory_bytes,
        "Too many large responses at a time: retry when earlier responses have ended",
    )
    failpoints = Failpoints(settings.failpoints).engines
    attempts = FailoverClient(
        policy, health, MediaInliner(_media_fetcher(media, database)), memory, failpoints
    )
    attempts.check_credential = _credential_check(database)
    gateway = Gateway(database, router, attempts, prices, policy, limiter)
    if tracing is not None:
        gateway.on_call_end = tracing.record_call
        tracing.kinds = {row.name: row.kind for row in policy.servers}
    conversations = ConversationStore(database, policy, lambda: gateway.boot)
    return GatewayRuntime(gateway, open_servers, ResponseStore(database, policy), conversations, tracing)


@functools.cache
def _bundled_prices() -> Mapping[str, Any]:
    return tomllib.loads(_PRICES.read_text("utf-8"))


def price_book(settings: Settings) -> PriceBook:
    """Return the token prices of these settings; raises `ValueError`."""
    own_prices = settings.tables.get("gateway", {}).get("prices", {})
    if not isinstance(own_prices, dict):
        raise ValueError("[gateway.prices] must be a table")  # noqa: TRY004 - all that is wrong here is a ValueError
    bundled = _bundled_prices()
    return PriceBook(
        bundled["models"],
        cast("dict[str, Any]", own_prices),
        tools=bundled["tools"],
        own_hardware_free=settings.own_hardware_free,
    )


async def look(
    settings: Settings, seconds: float = PROBE_SECONDS
) -> tuple[Mapping[str, EngineStatus], tuple[ServerStatus, ...]]:
    """Probe for model servers once, each for at most `seconds`; raises `InvalidSetting`.

    Return the status that each engine for language models would have on a server with these settings, and
    the status of every model server.
    """
    with InvalidSetting.of(ValueError):
        policy = policies.parse(settings.tables.get("gateway", {}))
        servers = _servers(settings, policy, None)
    servers.probe_seconds = seconds
    try:
        await servers.refresh_own()
        router = ModelRouter(servers, policy.aliases, HealthTracker(time.monotonic))
        standings = {"relay": _standing(router, CHAT), "relay-vision": _standing(router, VISION)}
        return standings, servers.statuses()
    finally:
        await servers.aclose()


def _standing(router: ModelRouter, name: str) -> EngineStatus:
    if servers := router.unresponsive(name):
        reasons = [f"{server.name} {server.outage.text}" for server in servers if server.outage is not None]
        return EngineStatus(False, "; ".join(reasons), " and ".join(outage_clauses(servers)))
    count = sum(server.outage is None for server in router.servers())
    if not count:
        return EngineStatus(False, "no model server is known")
    if not router.available(name):
        missing = "a chat model that accepts images" if name == VISION else "a chat model"
        return EngineStatus(False, f"no model server has {missing}")
    return EngineStatus(True, f"{count} model server{'s' if count > 1 else ''}")


def _media_fetcher(media: MediaService, database: Database) -> Fetch:
    async def fetch(tenant: Tenant, name: str, kind: str, url: str, place: int) -> tuple[str, bytes]:
        source = await media.resolve(tenant, Descriptor(name, cast("Any", kind)), url)
        if connections.is_late():
            await database.read(access_checks.unchanged(), snapshot=False)
        # Each attempt of a request inlines its media again, after the body of the last attempt is gone.
        key = f"{place} {source.blob}"
        await loaded_objects.reserve(source.size, loaded_objects.INLINED_COPIES, key)
        return source.content_type, await media.blobs.get(source.blob)

    return fetch


def _credential_check(database: Database) -> Callable[[GatewayRequest], Awaitable[None]]:
    async def check(request: GatewayRequest) -> None:
        # A call that is paid already belongs to work that was accepted.
        if request.prepaid_hold is None and connections.is_late():
            await database.read(access_checks.current(request.caller), snapshot=False)

    return check


def _tracing(endpoint: str) -> Tracing | None:
    """Return the exporter of spans, or None; OpenTelemetry is imported only if an endpoint is set."""
    if not endpoint:
        return None
    try:
        module = importlib.import_module("sixfold.net.tracing")
    except ModuleNotFoundError as error:
        raise ValueError("otel_endpoint requires OpenTelemetry: run pip install 'sixfold[otel]'") from error
    tracing: Tracing = module.open_tracing(endpoint)
    return tracing


def _servers(settings: Settings, policy: GatewayPolicy, tracing: Tracing | None) -> ModelServers:
    return _opener(settings, policy, tracing)(policy)


def _opener(
    settings: Settings, policy: GatewayPolicy, tracing: Tracing | None
) -> Callable[[GatewayPolicy], ModelServers]:
    """Return a function that opens the servers of a policy; they share connections and loaded models."""
    transport = SchemeTransport(policy.connect_seconds, policy.timeout_seconds)
    if tracing is not None:
        transport = tracing.wrap_transport(transport)
    embedded = llama.build(policy.servers, settings.data_dir / "weights", transport)
    return lambda current: ModelServers(
        [row for row in current.servers if row.kind != llama.KIND],
        transport,
        lambda name: provider_setting(settings, name),
        hosts=ProbeHosts(settings.probe_hosts, probe=settings.probe),
        own_ports=frozenset({settings.port, settings.comfyui_port}),
        own=embedded,
    )
