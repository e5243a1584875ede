"""Builds the application from its settings, and runs its background tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sixfold import errors, import_string
from sixfold.api.gateway import chat_services
from sixfold.app import (
    catalog as app_catalog,
)
from sixfold.app import (
    drivers as app_drivers,
)
from sixfold.app import (
    graphs as app_graphs,
)
from sixfold.app import (
    media as app_media,
)
from sixfold.app import (
    storage,
)
from sixfold.app.config_reload import ConfigReloader, WatchedFile
from sixfold.clients.chat import bootstrap as relays
from sixfold.clients.chat.bootstrap import GatewayRuntime
from sixfold.clients.gradio import spaces as gradio
from sixfold.clients.oidc import OidcClient
from sixfold.core.account_data.deletion import AccountDeletion
from sixfold.core.accounts import credentials
from sixfold.core.accounts.connections import Connections
from sixfold.core.accounts.oidc_identities import OidcProvider
from sixfold.core.accounts.payments import Checkout
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.catalog.custom_models import ImageInspector
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.gradio_spaces import LocalSpaces
from sixfold.core.catalog.models import Catalog, EngineSpec
from sixfold.core.catalog.templates import Templates
from sixfold.core.database import Database
from sixfold.core.failpoints import Failpoints
from sixfold.core.media import upload_paths
from sixfold.core.media.media import MediaService
from sixfold.core.media.ports import BlobStore
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.core.memory.service import MemoryService
from sixfold.core.predictions import refunds
from sixfold.core.predictions import requests as prediction_requests
from sixfold.core.predictions.child_runs import PipelineChildren
from sixfold.core.predictions.events import EventBus
from sixfold.core.predictions.service import PredictionService
from sixfold.core.predictions.webhooks import WebhookOutbox
from sixfold.core.provenance.signing import Signer
from sixfold.core.sessions.service import SessionCatalog, SessionService
from sixfold.core.workers.peer_events import PeerEventListener, SharedDatabase
from sixfold.core.workers.runs import RunFinisher
from sixfold.core.workers.scheduler import Scheduler
from sixfold.core.workflows.service import GraphService
from sixfold.drivers.remote import ServerServices
from sixfold.engines.availability import EngineAvailability
from sixfold.engines.python_models import watcher as own_files
from sixfold.engines.resources import InstalledResources
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher
from sixfold.payments.erc20 import DepositWatcher
from sixfold.payments.stripe import StripeClient
from sixfold.settings import Settings
from sixfold.store.secrets import provider_key

_Document = Mapping[str, Any] | None
_LOOK_SECONDS, _SWEEP_SECONDS = 10, 60


@dataclass(frozen=True, slots=True)
class Application:
    """The components of a running server, on which the APIs are built."""

    settings: Settings
    database: Database
    blobs: BlobStore
    uploads: BlobStore
    catalog: Catalog
    templates: Templates
    media: MediaService
    pipeline: PredictionService
    supervisor: Scheduler
    outbox: WebhookOutbox
    webhook_secrets: WebhookSecrets
    spaces: gradio.GradioSpaces
    spaces_here: LocalSpaces
    shelf: own_files.ModelWatcher
    live: SessionService
    standings: EngineAvailability
    clients: HttpClients
    fetcher: Fetcher
    signer: Signer
    bus: EventBus
    memory: MemoryService
    neighbours: PeerEventListener | None
    finder: SearchService
    relaying: GatewayRuntime
    checkout: Checkout
    provider: OidcProvider
    deposits: DepositWatcher
    images: ImageInspector
    workshop: GraphService
    resources: InstalledResources
    config_reloader: ConfigReloader
    connections: Connections


def build(
    settings: Settings, models_document: _Document = None, source: WatchedFile | None = None
) -> Application:
    """Build the application without starting it.

    `models_document` replaces `data/models`; `source` is the configuration file to watch.
    """
    failpoints, bus, templates = Failpoints(settings.failpoints), EventBus(), app_catalog.templates()
    database, blobs = storage.open_database(settings), storage.open_blobs(settings)
    signer, sealed = _sealing(settings, database)
    clients = HttpClients(fetcher := app_media.open_fetcher(settings))
    media = app_media.open_media(settings, database, blobs, fetcher)
    models = app_catalog.catalog(settings, app_catalog.price_table(settings), models_document)
    address = app_graphs.comfyui_address(settings)
    standings = app_catalog.standings(settings, models, clients, address)
    terms = SelectionPolicy(settings.previews_allowed, standing=standings)
    session_catalog = SessionCatalog(models, templates, terms, settings.session_limit)
    road = PredictionService(database, models, media, bus, _admission(settings, terms), failpoints)
    theirs = app_graphs.comfyui(settings, clients, address)
    graphs = app_graphs.build(settings, database, media, signer, road, theirs)
    relaying = relays.build(settings, database, media)
    standings.status_sources |= {"relay": relaying.standing, "relay-vision": relaying.vision_standing}
    outside = _outside(settings, clients, database, road, graphs, relaying)
    outside.comfyui = address
    places = app_drivers.build(settings, failpoints, outside, templates)
    places.tell(standings)
    finisher = RunFinisher(database, media, signer, settings.max_attempts, failpoints)
    workers = Scheduler(database, places.driver, models.engines(), finisher, bus, places.policy)
    is_shared = isinstance(database, SharedDatabase) and settings.driver != "ray"
    _join(road, workers, standings, is_shared=is_shared)
    outbox, finder = WebhookOutbox(database, fetcher, sealed), _finder(settings, database)
    bus.watchers += [outbox.on_event, *relaying.watchers]
    return Application(
        settings=settings,
        database=database,
        blobs=blobs,
        uploads=storage.open_uploads(settings),
        catalog=models,
        templates=templates,
        media=media,
        pipeline=road,
        supervisor=workers,
        outbox=outbox,
        webhook_secrets=sealed,
        spaces=(hub := gradio.build(settings, clients)),
        spaces_here=app_drivers.hosted_spaces(settings, places.images, hub),
        shelf=own_files.build(settings, road.custom_models, database),
        connections=(connections := Connections(database)),
        live=SessionService(
            database, places.driver, session_catalog, places.policy, workers.boot, connections
        ),
        standings=standings,
        clients=clients,
        fetcher=fetcher,
        signer=signer,
        bus=bus,
        memory=_memory(settings, database, finder),
        neighbours=_neighbours(database, bus, workers),
        finder=finder,
        relaying=relaying,
        checkout=StripeClient(clients.upstream, settings),
        provider=OidcClient(clients.upstream, settings),
        images=app_drivers.ContainerInspector(places.images, settings.data_dir / "scratch"),
        deposits=DepositWatcher(clients.upstream, database, settings.tables.get("deposits")),
        workshop=graphs,
        resources=app_catalog.resources(
            settings, models, standings, relaying.statuses, (standings.refresh, relaying.refresh)
        ),
        config_reloader=ConfigReloader(source, models, relaying),
    )


def _admission(settings: Settings, terms: SelectionPolicy) -> prediction_requests.AdmissionPolicy:
    return prediction_requests.AdmissionPolicy(
        settings.queue_limit, terms, settings.run_limit_seconds, settings.free_queue_limit
    )


def _outside(
    settings: Settings,
    clients: HttpClients,
    database: Database,
    road: PredictionService,
    graphs: GraphService,
    relaying: GatewayRuntime,
) -> ServerServices:
    return ServerServices(
        clients,
        lambda name: provider_key(settings, name),
        children=PipelineChildren(road, database),
        workflows=graphs,
        gateway=relaying.relay,
        conversation=chat_services.register(relaying.relay, road),
    )


def _neighbours(database: Database, bus: EventBus, workers: Scheduler) -> PeerEventListener | None:
    return PeerEventListener(database, bus, workers) if isinstance(database, SharedDatabase) else None


def _join(
    road: PredictionService, workers: Scheduler, standings: EngineAvailability, *, is_shared: bool
) -> None:
    """Connect the service with the scheduler; with a shared queue, claim for this server's engines only."""
    # The machines of a Ray cluster have engines of their own, so this does not apply to them.
    if is_shared:
        workers.can_run = lambda engine: standings(engine).ready

    def admit(engines: Sequence[EngineSpec]) -> None:
        standings.admit(engines)
        workers.admit(engines)

    road.custom_models.admit = admit
    road.on_accepted = workers.accepted
    road.on_cancel = workers.cancel


def _memory(settings: Settings, database: Database, finder: SearchService) -> MemoryService:
    allowed = MemoryLimits(
        page_bytes=settings.memory_page_bytes,
        import_files=settings.memory_import_files,
        import_bytes=settings.memory_import_bytes,
        account_pages=settings.memory_account_pages,
        account_bytes=settings.memory_account_bytes,
        plans_enforced=settings.memory_plans == "enforced",
    )
    return MemoryService(database, allowed, settings.base_url, finder)


def _sealing(settings: Settings, database: Database) -> tuple[Signer, WebhookSecrets]:
    """Return what signs manifests and encrypts webhook secrets with the server's key."""
    master = storage.server_secret(settings.data_dir, "server.key")
    return Signer(master), WebhookSecrets(database, master)


def _finder(settings: Settings, database: Database) -> SearchService:
    """Return the memory's search, which uses MiniLM if `sixfold engines add embeddings` has installed it."""
    folder = settings.data_dir / "weights" / "embeddings"
    # Deferred, because importing numpy takes 15 MB of memory.
    index = import_string.deferred("sixfold.store.search.index:PageIndex")
    find = import_string.deferred("sixfold.engines.text.minilm:find")
    shelf = IndexCache(database, index, settings.memory_index_bytes)
    return SearchService(database, shelf, lambda: find(folder) if folder.is_dir() else None)


@asynccontextmanager
async def running(product: Application) -> AsyncIterator[Application]:
    """Run the application within the block; drains and closes it at the end."""
    await product.pipeline.custom_models.load()
    # Otherwise a server of the previous version may still be signing with plaintext secrets.
    if product.neighbours is None:
        await product.webhook_secrets.encrypt_all()
    await product.standings.refresh()
    if product.neighbours is not None:
        await product.neighbours.start()
    await product.supervisor.start()
    await product.live.start(alone=product.neighbours is None)
    await product.relaying.start(product.supervisor.boot)
    await product.finder.look()
    rounds = [asyncio.create_task(work, name=name) for name, work in _rounds(product).items()]
    try:
        yield product
    finally:
        for task in rounds:
            task.cancel()
        await asyncio.wait(rounds)
        product.pipeline.drain()
        await product.live.drain()
        await ended(product)
        await product.relaying.stop()
        if product.neighbours is not None:
            await product.neighbours.stop()
        await product.clients.aclose()
        await product.database.close()


def _rounds(product: Application) -> dict[str, Coroutine[Any, Any, None]]:
    """Return the background tasks of a server."""
    return {
        "standings": _watch(product),
        "sweep": _sweep(product),
        "connections": product.connections.run(),
        "webhooks": product.outbox.run(),
        "deposits": product.deposits.run(),
        "embedding": product.finder.run(),
        "own-models": product.shelf.run(),
        "configuration": product.config_reloader.run(),
    }


async def _watch(product: Application) -> None:
    """Refresh the status of weights, servers and keys periodically."""
    while True:
        await product.workshop.refresh_remote()
        await asyncio.sleep(_LOOK_SECONDS)
        await product.standings.refresh()


async def _sweep(product: Application) -> None:
    """Delete expired data every minute; what fails is repeated the next time."""
    leaving = leaving_of(product)
    # Only an older version leaves such rows, so once after a restart is enough.
    with contextlib.suppress(errors.StoreFailed):
        await product.database.write(refunds.sweep_children())
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        with contextlib.suppress(errors.StoreFailed):
            await product.media.sweep()
            await product.database.write(credentials.delete_expired(), durable=False)
            await product.database.write(upload_paths.sweep(), durable=False)
            await product.database.write(refunds.sweep())
            await product.outbox.sweep()
            await product.webhook_secrets.encrypt_all()
            await product.workshop.names.sweep()
            await leaving.sweep()


def leaving_of(product: Application) -> AccountDeletion:
    """Return the service that deletes closed accounts."""
    ends = product.pipeline.cancel, product.live.close, product.checkout.end
    return AccountDeletion(product.database, product.uploads, *ends)


async def ended(product: Application) -> None:
    """Wait for runs and callers within the drain time, then stop all workers."""
    seconds = product.settings.drain_seconds
    await asyncio.gather(product.supervisor.drain(seconds), product.pipeline.waiters.wait_patient(seconds))
    # Unfinished runs must be back in the queue before the waiting callers return.
    await product.supervisor.stop()
    product.pipeline.waiters.stop()
