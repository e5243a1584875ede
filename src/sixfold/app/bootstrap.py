"""Settings in, running product out: what the other rooms open, put together and kept at work."""

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
from sixfold.app.config_reload import ConfigReloader, Source
from sixfold.clients.chat import bootstrap as relays
from sixfold.clients.chat.bootstrap import Relaying
from sixfold.clients.gradio import spaces as gradio
from sixfold.clients.oidc import OpenId
from sixfold.core.account_data.deletion import Leaving
from sixfold.core.accounts import sweeping
from sixfold.core.accounts.connections import Connections
from sixfold.core.accounts.oidc_identities import Provider
from sixfold.core.accounts.payments import Checkout
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.catalog.container_images import Images
from sixfold.core.catalog.engine_selection import Terms
from sixfold.core.catalog.gradio_spaces import SpacesHere
from sixfold.core.catalog.models import Catalog, EngineSpec
from sixfold.core.catalog.templates import Templates
from sixfold.core.database import Database
from sixfold.core.failpoints import Failpoints
from sixfold.core.media import upload_paths
from sixfold.core.media.media import Media
from sixfold.core.media.ports import BlobStore
from sixfold.core.memory.limits import Limits
from sixfold.core.memory.search.index_cache import Shelf
from sixfold.core.memory.search.service import Finder
from sixfold.core.memory.service import Memory
from sixfold.core.predictions import refunds
from sixfold.core.predictions import requests as prediction_requests
from sixfold.core.predictions.child_runs import PipelineChildren
from sixfold.core.predictions.events import Bus
from sixfold.core.predictions.service import Pipeline
from sixfold.core.predictions.webhooks import Outbox
from sixfold.core.provenance.signing import Signer
from sixfold.core.sessions.service import LiveSessions, Offer
from sixfold.core.workers.peer_events import Neighbours, Shared
from sixfold.core.workers.runs import Finisher
from sixfold.core.workers.scheduler import Supervisor
from sixfold.core.workflows.service import Workshop
from sixfold.drivers.remote import ServerOutside
from sixfold.engines.availability import Standings
from sixfold.engines.python_models import watcher as own_files
from sixfold.engines.resources import InstalledResources
from sixfold.net.clients import Clients
from sixfold.net.fetch import Fetcher
from sixfold.payments.erc20 import Deposits
from sixfold.payments.stripe import Stripe
from sixfold.settings import Settings
from sixfold.store.secrets import provider_key

_Document = Mapping[str, Any] | None
_LOOK_SECONDS, _SWEEP_SECONDS = 10, 60


@dataclass(frozen=True, slots=True)
class Product:
    """Everything that a running server is made of; the faces are built on it."""

    settings: Settings
    database: Database
    blobs: BlobStore
    uploads: BlobStore
    catalog: Catalog
    templates: Templates
    media: Media
    pipeline: Pipeline
    supervisor: Supervisor
    outbox: Outbox
    webhook_secrets: WebhookSecrets
    spaces: gradio.GradioSpaces
    spaces_here: SpacesHere
    shelf: own_files.Shelf
    live: LiveSessions
    standings: Standings
    clients: Clients
    fetcher: Fetcher
    signer: Signer
    bus: Bus
    memory: Memory
    neighbours: Neighbours | None
    finder: Finder
    relaying: Relaying
    checkout: Checkout
    provider: Provider
    deposits: Deposits
    images: Images
    workshop: Workshop
    resources: InstalledResources
    config_reloader: ConfigReloader
    connections: Connections


def build(settings: Settings, models_document: _Document = None, source: Source | None = None) -> Product:
    """The product, not yet running; `models_document` replaces `data/models`, `source` is read again."""
    failpoints, bus, templates = Failpoints(settings.failpoints), Bus(), app_catalog.templates()
    database, blobs = storage.open_database(settings), storage.open_blobs(settings)
    signer, sealed = _sealing(settings, database)
    clients = Clients(fetcher := app_media.open_fetcher(settings))
    media = app_media.open_media(settings, database, blobs, fetcher)
    models = app_catalog.catalog(settings, app_catalog.price_table(settings), models_document)
    address = app_graphs.comfyui_address(settings)
    standings = app_catalog.standings(settings, models, clients, address)
    terms = Terms(settings.previews_allowed, standing=standings)
    offer = Offer(models, templates, terms, settings.session_limit)
    road = Pipeline(database, models, media, bus, _admission(settings, terms), failpoints)
    theirs = app_graphs.comfyui(settings, clients, address)
    graphs = app_graphs.build(settings, database, media, signer, road, theirs)
    relaying = relays.build(settings, database, media)
    standings.told |= {"relay": relaying.standing, "relay-vision": relaying.vision_standing}
    outside = _outside(settings, clients, database, road, graphs, relaying)
    places = app_drivers.build(settings, failpoints, outside, templates)
    places.tell(standings)
    finisher = Finisher(database, media, signer, settings.max_attempts, failpoints)
    workers = Supervisor(database, places.driver, models.engines(), finisher, bus, places.policy)
    is_shared = isinstance(database, Shared) and settings.driver != "ray"
    _join(road, workers, standings, is_shared=is_shared)
    outbox, finder = Outbox(database, fetcher, sealed), _finder(settings, database)
    bus.watchers += [outbox.heard, *relaying.watchers]
    return Product(
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
        shelf=own_files.build(settings, road.own, database),
        connections=(connections := Connections(database)),
        live=LiveSessions(database, places.driver, offer, places.policy, workers.boot, connections),
        standings=standings,
        clients=clients,
        fetcher=fetcher,
        signer=signer,
        bus=bus,
        memory=_memory(settings, database, finder),
        neighbours=_neighbours(database, bus, workers),
        finder=finder,
        relaying=relaying,
        checkout=Stripe(clients.upstream, settings),
        provider=OpenId(clients.upstream, settings),
        images=app_drivers.Learning(places.images, settings.data_dir / "scratch"),
        deposits=Deposits(clients.upstream, database, settings.tables.get("deposits")),
        workshop=graphs,
        resources=app_catalog.resources(
            settings, models, standings, relaying.statuses, (standings.refresh, relaying.refresh)
        ),
        config_reloader=ConfigReloader(source, models, relaying),
    )


def _admission(settings: Settings, terms: Terms) -> prediction_requests.Policy:
    return prediction_requests.Policy(
        settings.queue_limit, terms, settings.run_limit_seconds, settings.free_queue_limit
    )


def _outside(
    settings: Settings,
    clients: Clients,
    database: Database,
    road: Pipeline,
    graphs: Workshop,
    relaying: Relaying,
) -> ServerOutside:
    outside = ServerOutside(
        clients,
        lambda name: provider_key(settings, name),
        children=PipelineChildren(road, database),
        workshop=graphs,
        relay=relaying.relay,
        conversation=chat_services.join(relaying.relay, road),
    )
    outside.comfyui = app_graphs.comfyui_address(settings)
    return outside


def _neighbours(database: Database, bus: Bus, workers: Supervisor) -> Neighbours | None:
    return Neighbours(database, bus, workers) if isinstance(database, Shared) else None


def _join(road: Pipeline, workers: Supervisor, standings: Standings, *, is_shared: bool) -> None:
    """Connect the pipeline with the supervisor; one that shares its queue claims for its own engines only."""
    if is_shared:  # the machines of a Ray cluster have engines of their own
        workers.can = lambda engine: standings(engine).ready

    def admit(engines: Sequence[EngineSpec]) -> None:
        standings.admit(engines)
        workers.admit(engines)

    road.own.admit = admit
    road.on_accepted = workers.accepted
    road.on_cancel = workers.cancel


def _memory(settings: Settings, database: Database, finder: Finder) -> Memory:
    """The memory of every account."""
    allowed = Limits(
        page_bytes=settings.memory_page_bytes,
        import_files=settings.memory_import_files,
        import_bytes=settings.memory_import_bytes,
        account_pages=settings.memory_account_pages,
        account_bytes=settings.memory_account_bytes,
        plans_enforced=settings.memory_plans == "enforced",
    )
    return Memory(database, allowed, settings.base_url, finder)


def _sealing(settings: Settings, database: Database) -> tuple[Signer, WebhookSecrets]:
    """What signs and seals with the server's key."""
    master = storage.server_secret(settings.data_dir, "server.key")
    return Signer(master), WebhookSecrets(database, master)


def _finder(settings: Settings, database: Database) -> Finder:
    """The memory's search, with meaning where `sixfold engines add embeddings` has put MiniLM."""
    folder = settings.data_dir / "weights" / "embeddings"
    index = import_string.deferred(
        "sixfold.store.search.index:PageIndex"
    )  # numpy would cost each start 15 MB
    find = import_string.deferred("sixfold.engines.text.minilm:find")
    shelf = Shelf(database, index, settings.memory_index_bytes)
    return Finder(database, shelf, lambda: find(folder) if folder.is_dir() else None)


@asynccontextmanager
async def running(product: Product) -> AsyncIterator[Product]:
    """The product at work; drains and closes on the way out."""
    await product.pipeline.own.load()
    if product.neighbours is None:  # else a server of the version before may still sign by the open ones
        await product.webhook_secrets.seal_all()
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


def _rounds(product: Product) -> dict[str, Coroutine[Any, Any, None]]:
    """What goes on beside the runs for as long as the server does."""
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


async def _watch(product: Product) -> None:
    """See weights, servers and keys come and go."""
    while True:
        await product.workshop.look()
        await asyncio.sleep(_LOOK_SECONDS)
        await product.standings.refresh()


async def _sweep(product: Product) -> None:
    """Forget what has had its time; whatever could not be written now is tried again a round later."""
    leaving = leaving_of(product)
    with contextlib.suppress(errors.StoreFailed):  # of an older version, which only a restart leaves behind
        await product.database.write(refunds.sweep_children())
    while True:
        await asyncio.sleep(_SWEEP_SECONDS)
        with contextlib.suppress(errors.StoreFailed):
            await product.media.sweep()
            await product.database.write(sweeping.sweep(), durable=False)
            await product.database.write(upload_paths.sweep(), durable=False)
            await product.database.write(refunds.sweep())
            await product.outbox.sweep()
            await product.webhook_secrets.seal_all()
            await product.workshop.names.sweep()
            await leaving.sweep()


def leaving_of(product: Product) -> Leaving:
    """Ends what accounts that leave still have, and erases them."""
    ends = product.pipeline.cancel, product.live.close, product.checkout.end
    return Leaving(product.database, product.uploads, *ends)


async def ended(product: Product) -> None:
    """Let what runs finish and those who wait hear of it, within the time for that; then end all workers."""
    seconds = product.settings.drain_seconds
    await asyncio.gather(product.supervisor.drain(seconds), product.pipeline.waiters.stay(seconds))
    await product.supervisor.stop()  # what still runs is back in the queue before anybody is let go
    product.pipeline.waiters.let_go()
