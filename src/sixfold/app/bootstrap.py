"""Construction of the application from its settings, and its background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from sixfold import errors, import_string
from sixfold.api.gateway import chat_services
from sixfold.app import catalog as app_catalog
from sixfold.app import drivers as app_drivers
from sixfold.app import graphs as app_graphs
from sixfold.app import media as app_media
from sixfold.app import memory as app_memory
from sixfold.app import operator_services as operator
from sixfold.app import storage
from sixfold.app.config_reload import WatchedFile
from sixfold.app.drivers import WorkerDrivers
from sixfold.app.gateway import runtime as app_gateway
from sixfold.app.gateway.runtime import GatewayRuntime
from sixfold.app.gpu import GpuSharing
from sixfold.app.operator_services import OperatorServices
from sixfold.app.processes import ServerProcesses
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.clients.gradio import spaces as gradio
from sixfold.clients.oidc import OidcClient
from sixfold.core.account_data import retention
from sixfold.core.account_data.archive.writer import ArchiveWriter
from sixfold.core.account_data.deletion import AccountDeletion
from sixfold.core.account_data.retention import Retention
from sixfold.core.accounts import credentials
from sixfold.core.accounts.authentication.key_use import KeyUse
from sixfold.core.accounts.connections import Connections
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.alerts.sweep import MAX_SENDING as MAX_SENDING_ALERTS
from sixfold.core.alerts.sweep import CostAlerts
from sixfold.core.batches.models import BatchLimits
from sixfold.core.batches.processor import BatchProcessor
from sixfold.core.batches.service import BatchService
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.models import Catalog, EngineSpec
from sixfold.core.catalog.templates import Templates
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency import background, fair_threads
from sixfold.core.concurrency.background import Work
from sixfold.core.database import Database
from sixfold.core.documents import DocumentReader
from sixfold.core.failpoints import Failpoints
from sixfold.core.files.files import AccountFiles
from sixfold.core.gateway.attachments.document_texts import DocumentTexts
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.guardrails.hooks import GuardrailHooks
from sixfold.core.gateway.search.service import WebSearch
from sixfold.core.media import upload_paths
from sixfold.core.media.media import MediaService
from sixfold.core.media.ports import BlobStore
from sixfold.core.memory.search.service import SearchService
from sixfold.core.memory.sharing import membership
from sixfold.core.predictions import refunds
from sixfold.core.predictions import requests as prediction_requests
from sixfold.core.predictions.child_runs import PipelineChildren
from sixfold.core.predictions.events import EventBus
from sixfold.core.predictions.service import PredictionService
from sixfold.core.predictions.webhooks import MAX_SENDING, WebhookOutbox
from sixfold.core.provenance.signing import Signer
from sixfold.core.sessions.service import SessionCatalog
from sixfold.core.vector_stores import parts as vector_store_parts
from sixfold.core.vector_stores.parts import VectorStoreParts
from sixfold.core.vector_stores.stores import VectorStoreLimits
from sixfold.core.workers.peer_events import PeerEventListener, SharedDatabase
from sixfold.core.workers.runs import RunFinisher
from sixfold.core.workers.scheduler import Scheduler
from sixfold.core.workflows.service import GraphService
from sixfold.drivers.remote import InternalServices, ServerServices
from sixfold.engines.availability import EngineAvailability
from sixfold.engines.python_models import watcher as model_watcher
from sixfold.engines.resources import InstalledResources
from sixfold.net.clients import HttpClients
from sixfold.net.fetch import Fetcher, FetchLimits
from sixfold.payments.erc20 import DepositWatcher
from sixfold.payments.stripe import StripeClient
from sixfold.settings import InvalidSetting, Settings
from sixfold.store.secrets import provider_key
from sixfold.web.services import CoreServices

_Rows = Mapping[str, Any] | None
REFRESH_SECONDS, SWEEP_SECONDS = 10, 60
_FIRST_REFRESH_SECONDS = 1.0


class Application(CoreServices, frozen=True, kw_only=True):
    """The components of a running server: the services of the APIs, and the parts that start and stop."""

    model_watcher: model_watcher.ModelWatcher
    availability: EngineAvailability
    clients: HttpClients
    fetcher: Fetcher
    bus: EventBus
    peer_events: PeerEventListener | None
    processes: ServerProcesses | None
    memory_search: SearchService
    gateway_runtime: GatewayRuntime
    deposits: DepositWatcher
    retention: Retention
    operator: OperatorServices
    gpu: GpuSharing
    image_inspector: app_drivers.ContainerInspector


def build(settings: Settings, model_rows: _Rows = None, source: WatchedFile | None = None) -> Application:
    """Build the application; `model_rows` replaces `data/models`, and `source` is watched for changes."""
    failpoints, bus, templates = Failpoints(settings.failpoints), EventBus(), app_catalog.templates()
    processes, reader = _processes(settings, bus), app_media.document_reader(settings)
    blobs, address = storage.open_blobs(settings), app_graphs.comfyui_address(settings)
    database = storage.open_database(settings, None if processes is None else processes.channel)
    signer, webhook_secrets = _signer_and_secrets(settings, database)
    clients = HttpClients(fetcher := app_media.open_fetcher(settings))
    models = app_catalog.catalog(settings, app_catalog.price_table(settings), model_rows)
    media = app_media.open_media(settings, database, blobs, storage.open_uploads(settings), fetcher, models)
    availability = app_catalog.availability(settings, models, clients, address)
    terms = SelectionPolicy(settings.previews_allowed, status_of=availability)
    live = SessionCatalog(models, templates, terms, settings.session_limit, settings.session_pause_seconds)
    predictions = PredictionService(database, models, media, bus, _admission(settings, terms), failpoints)
    comfyui = app_graphs.comfyui(settings, clients, address)
    graphs = app_graphs.build(settings, database, media, signer, predictions, comfyui)
    gateway = _gateway(settings, database, media, GuardrailHooks(database, fetcher, webhook_secrets), bus)
    internal = _internal_services(database, predictions, graphs, gateway.gateway, templates)
    services = _server_services(settings, clients, internal, address)
    drivers = app_drivers.build(settings, failpoints, services, templates)
    _register_status(availability, gateway, drivers, models)
    finisher = RunFinisher(database, media, signer, settings.max_attempts, failpoints)
    scheduler = Scheduler(database, drivers.driver, models.engines(), finisher, bus, drivers.policy)
    _connect(predictions, scheduler, availability, is_shared=_shares_queue(settings, database))
    outbox, search = _outbox(settings, clients, webhook_secrets, bus), app_memory.search(settings, database)
    links = operator.links(settings, address, clients, gateway.gateway)
    return Application(
        settings=settings,
        database=database,
        blobs=blobs,
        uploads=media.uploaded_files.store,
        catalog=models,
        templates=templates,
        media=media,
        vector_stores=_vector_stores(settings, database, blobs, reader),
        document_texts=DocumentTexts(reader, settings.scratch_dir / "documents"),
        files=(account_files := app_media.open_files(settings, database, blobs)),
        batches=(batches := BatchService(database, account_files, _batch_limits(settings))),
        batch_processor=_batch_processor(database, account_files, batches, scheduler.boot, failpoints),
        predictions=predictions,
        scheduler=scheduler,
        outbox=outbox,
        webhook_secrets=webhook_secrets,
        spaces=(gradio_spaces := gradio.build(settings, clients)),
        local_spaces=app_drivers.hosted_spaces(settings, drivers.images, gradio_spaces),
        model_watcher=model_watcher.build(settings, predictions.custom_models, database),
        key_use=KeyUse(database),
        connections=(connections := Connections(database)),
        live_sessions=drivers.sessions(database, live, scheduler.boot, connections),
        availability=availability,
        clients=clients,
        fetcher=fetcher,
        signer=signer,
        bus=bus,
        memory=app_memory.pages(settings, database, search, reader, fetcher, blobs),
        peer_events=_peer_events(database, bus, scheduler),
        processes=processes,
        memory_search=search,
        gateway_runtime=gateway,
        checkout=StripeClient(clients.upstream, settings),
        oidc=OidcClient(clients.upstream, settings),
        image_inspector=app_drivers.ContainerInspector(drivers.images, settings.scratch_dir),
        deposits=DepositWatcher(clients.upstream, database, settings.tables.get("deposits")),
        retention=_retention(settings, ArchiveWriter(database, blobs, failpoints), scheduler.boot),
        workflows=graphs,
        tool_servers=links.tool_servers,
        web_search=links.web_search,
        resources=(local := _resources(settings, models, availability, gateway, links.web_search)),
        operator=operator.build(settings, source, database, models, gateway, local).connect(links),
        gpu=drivers.gpu,
    )


def _admission(settings: Settings, terms: SelectionPolicy) -> prediction_requests.AdmissionPolicy:
    return prediction_requests.AdmissionPolicy(
        settings.queue_limit,
        terms,
        settings.run_limit_seconds,
        settings.free_queue_limit,
        settings.model_versions,
        app_media.check_glyphs,
        settings.upload_quota_bytes,
    )


def _outbox(
    settings: Settings, clients: HttpClients, secrets: WebhookSecrets, bus: EventBus
) -> WebhookOutbox:
    """Return the outbox, whose separate fetcher keeps slow receivers from delaying other fetches.

    Cost alerts use it as well; the fetcher has enough slots for both.
    """
    limits = FetchLimits(concurrent=MAX_SENDING + MAX_SENDING_ALERTS)
    sender = clients.own(app_media.open_fetcher(settings, limits))
    outbox = WebhookOutbox(secrets.database, sender, secrets)
    bus.watchers.append(outbox.on_event)
    return outbox


def _gateway(
    settings: Settings, database: Database, media: MediaService, hooks: GuardrailHooks, bus: EventBus
) -> GatewayRuntime:
    gateway = app_gateway.build(settings, database, media)
    gateway.attach_guardrails(hooks, database, storage.server_secret(settings.data_dir, "server.key"))
    bus.watchers += gateway.watchers
    return gateway


def _resources(
    settings: Settings,
    models: Catalog,
    availability: EngineAvailability,
    gateway: GatewayRuntime,
    web_search: WebSearch,
) -> InstalledResources:
    probes = (availability.refresh, gateway.refresh)
    return app_catalog.resources(
        settings, models, availability, gateway.statuses, probes, lambda: web_search.engine
    )


def _batch_limits(settings: Settings) -> BatchLimits:
    return BatchLimits(
        settings.batch_lines,
        settings.batch_file_bytes,
        settings.batches_per_account,
        settings.batch_concurrency,
        round(settings.lease_seconds * SECOND_US),
    )


def _batch_processor(
    database: Database, files: AccountFiles, batches: BatchService, boot: str, failpoints: Failpoints
) -> BatchProcessor:
    engine = BatchProcessor(database, files, batches.limits, boot, failpoints)
    batches.on_change = engine.wake
    return engine


def _server_services(
    settings: Settings, clients: HttpClients, internal: InternalServices, comfyui: ComfyAddress
) -> ServerServices:
    services = ServerServices(clients, lambda name: provider_key(settings, name), internal)
    services.comfyui = comfyui
    return services


def _internal_services(
    database: Database,
    predictions: PredictionService,
    graphs: GraphService,
    gateway: Gateway,
    templates: Templates,
) -> InternalServices:
    return InternalServices(
        children=PipelineChildren(predictions, database),
        workflows=graphs,
        gateway=gateway,
        conversation=chat_services.register(gateway, predictions, templates),
    )


def _peer_events(database: Database, bus: EventBus, scheduler: Scheduler) -> PeerEventListener | None:
    return PeerEventListener(database, bus, scheduler) if isinstance(database, SharedDatabase) else None


def _processes(settings: Settings, bus: EventBus) -> ServerProcesses | None:
    channel = storage.open_channel(settings)
    folder = settings.data_dir / "processes" / "metrics"
    return None if channel is None else ServerProcesses(channel, bus, folder)


def _register_status(
    availability: EngineAvailability, gateway: GatewayRuntime, drivers: WorkerDrivers, models: Catalog
) -> None:
    availability.status_sources |= {"relay": gateway.standing, "relay-vision": gateway.vision_standing}
    drivers.register_probes(availability)
    engine_names = [engine.name for engine in models.engines().values() if engine.kind == "weights"]
    drivers.gpu.servers, drivers.gpu.has_weights = (
        gateway,
        lambda: any(availability(name).ready for name in engine_names),
    )


def _shares_queue(settings: Settings, database: Database) -> bool:
    return isinstance(database, SharedDatabase) and settings.driver != "ray"


def _connect(
    predictions: PredictionService, scheduler: Scheduler, availability: EngineAvailability, *, is_shared: bool
) -> None:
    """Connect the service with the scheduler.

    If the queue is shared, the scheduler claims only runs for this server's engines.
    """
    # The machines of a Ray cluster have other engines than this server, so this does not apply to them.
    if is_shared:
        scheduler.can_run = lambda engine: availability(engine).ready

    def admit(engines: Sequence[EngineSpec]) -> None:
        availability.admit(engines)
        scheduler.admit(engines)

    predictions.custom_models.admit = admit
    predictions.on_accepted = scheduler.accepted
    predictions.on_cancel = scheduler.cancel


def _vector_stores(
    settings: Settings, database: Database, blobs: BlobStore, reader: DocumentReader
) -> VectorStoreParts:
    limits = VectorStoreLimits(settings.vector_stores_per_account, settings.vector_store_bytes_per_account)
    # Deferred, because importing numpy takes 15 MB of memory.
    index = import_string.deferred("sixfold.store.search.index:PageIndex")
    files = app_media.open_files(settings, database, blobs)
    return vector_store_parts.build(database, files, reader, limits, index)


def _signer_and_secrets(settings: Settings, database: Database) -> tuple[Signer, WebhookSecrets]:
    """Return the manifest signer and the webhook secret cipher, which use the server's key."""
    master = storage.server_secret(settings.data_dir, "server.key")
    return Signer(master), WebhookSecrets(database, master)


@asynccontextmanager
async def running(application: Application) -> AsyncIterator[Application]:
    """Run the application within the block; parts stop in the reverse order of their start.

    If a part cannot start, the parts before it are stopped.
    """
    fair_threads.use_for_loop()
    async with AsyncExitStack() as stack:
        await _start(application, stack)
        yield application


async def _start(application: Application, stack: AsyncExitStack) -> None:
    """Start the parts of the application; `stack` receives the function that stops each of them."""
    processes, peer_events = application.processes, application.peer_events
    if processes is not None:
        processes.channel.open(application.scheduler.boot)
        # The database announces its last changes to the other processes through the channel.
        stack.callback(processes.channel.close)
        # Process 0 starts before the other processes.
        if application.settings.process == 0:
            processes.metrics_folder.clear()
    # All parts that follow write to the database until they have stopped.
    stack.push_async_callback(application.database.close)
    if processes is not None:
        # The last metrics include the work of all parts that follow, and figures of the database.
        stack.push_async_callback(_keep_metrics, processes)
    # The last requests of parts that follow also use keys and HTTP clients.
    stack.push_async_callback(application.key_use.store)
    stack.push_async_callback(application.clients.aclose)
    await application.predictions.custom_models.load()
    # Otherwise a server of the previous version may still be signing with plaintext secrets.
    if peer_events is None:
        await application.webhook_secrets.encrypt_all()
    # A server that does not respond must not delay the start.
    first_refresh = background.attempt("first availability", application.availability.refresh)
    refreshing = asyncio.create_task(first_refresh, name="first-availability")
    stack.push_async_callback(_cancel, [refreshing])
    await asyncio.wait([refreshing], timeout=_FIRST_REFRESH_SECONDS)
    if peer_events is not None:
        # A peer's cancellation of a run must arrive until the runs have ended.
        await peer_events.start()
        stack.push_async_callback(peer_events.stop)
    await application.operator.reloader.start()
    # The model servers of the gateway, the workers of runs and those of sessions hold memory of the GPUs.
    stack.push_async_callback(application.gpu.aclose)
    # Runs and sessions may call the gateway.
    await application.gateway_runtime.start(application.scheduler.boot)
    stack.push_async_callback(application.gateway_runtime.stop)
    await application.scheduler.start()
    stack.push_async_callback(drain, application)
    # Sessions use the scheduler's driver for their workers.
    await application.live_sessions.start(alone=peer_events is None)
    stack.push_async_callback(application.live_sessions.drain)
    # Waiting callers return before the runs and sessions are given time to end.
    stack.callback(application.predictions.drain)
    await application.memory_search.look()
    tasks = [
        asyncio.create_task(background.keep_running(name, run), name=name)
        for name, run in _background_tasks(application).items()
    ]
    # Background tasks start runs, and use all other parts.
    stack.push_async_callback(_cancel, tasks)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _keep_metrics(processes: ServerProcesses) -> None:
    with contextlib.suppress(errors.StoreFailed):
        await processes.keep_metrics()


def _background_tasks(application: Application) -> dict[str, Work]:
    """Return the background tasks of a process; tasks for the whole server run only in process 0."""
    tasks: dict[str, Work] = {
        "availability": functools.partial(_refresh_status, application),
        "connections": application.connections.run,
        "key-use": application.key_use.run,
        "webhooks": application.outbox.run,
        "vector-stores": application.vector_stores.ingestion.run,
        "embedding": application.memory_search.run,
        "index-snapshots": application.memory_search.keep_snapshots,
        "own-models": application.model_watcher.run,
        "configuration": application.operator.reloader.run,
        "batches": application.batch_processor.run,
        "gpu": application.gpu.run,
        "containers": application.image_inspector.tidy,
    }
    if application.settings.process == 0:
        tasks |= {
            "sweep": functools.partial(_sweep, application),
            "alerts": functools.partial(cost_alerts(application).run, SWEEP_SECONDS),
            "deposits": application.deposits.run,
            "retention": application.retention.run,
        }
    return tasks


def _retention(settings: Settings, writer: ArchiveWriter, boot: str) -> Retention:
    with InvalidSetting.of(ValueError):
        return Retention(writer, retention.policy(settings.tables.get("retention", {})), boot)


async def _refresh_status(application: Application) -> None:
    """Refresh the status of weights, servers and keys periodically."""
    while True:
        await application.workflows.refresh_remote()
        await asyncio.sleep(REFRESH_SECONDS)
        await application.availability.refresh()


async def _sweep(application: Application) -> None:
    """Delete expired data every minute; failed deletions are retried in the next round."""
    # Only an older version leaves such rows, so one run after a restart is enough.
    await background.attempt(
        "sweep of child runs", lambda: application.database.write(refunds.sweep_children())
    )
    await background.repeat(SWEEP_SECONDS, sweep_steps(application))


def sweep_steps(application: Application) -> dict[str, Work]:
    """Return the steps that run every minute: deletions of expired data, and retries."""
    write = application.database.write
    return {
        "sweep of files": application.files.sweep,
        "sweep of vector stores": application.vector_stores.stores.sweep,
        "sweep of batches": application.batches.sweep,
        "sweep of media": application.media.sweep,
        "sweep of credentials": lambda: write(credentials.delete_expired(), durable=False),
        "sweep of upload paths": lambda: write(upload_paths.sweep(), durable=False),
        "sweep of refunds": lambda: write(refunds.sweep()),
        "sweep of webhooks": application.outbox.sweep,
        "encryption of webhook secrets": application.webhook_secrets.encrypt_all,
        "sweep of node outputs": application.workflows.names.sweep,
        "sweep of memberships": lambda: membership.sweep(application.database),
        "deletion of closed accounts": account_deletion(application).sweep,
    }


def cost_alerts(application: Application) -> CostAlerts:
    """Return the service that counts spending and sends cost alerts."""
    return CostAlerts(application.database, application.outbox.sender, application.webhook_secrets)


def account_deletion(application: Application) -> AccountDeletion:
    """Return the service that deletes closed accounts."""
    ends = application.predictions.cancel, application.live_sessions.close, application.checkout.end
    return AccountDeletion(application.database, application.uploads, *ends)


async def drain(application: Application) -> None:
    """Wait for runs and callers until the drain time ends, then stop all workers."""
    seconds = application.settings.drain_seconds
    await asyncio.gather(
        application.scheduler.drain(seconds), application.predictions.waiters.wait_patient(seconds)
    )
    # Unfinished runs must be back in the queue before the waiting callers return.
    await application.scheduler.stop()
    application.predictions.waiters.stop()
