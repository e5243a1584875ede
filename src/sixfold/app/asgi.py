"""The ASGI application: all enabled APIs of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from starlette.types import ASGIApp

from sixfold import import_string
from sixfold.api.gateway import openapi as gateway_description
from sixfold.api.gateway import routes as gateway
from sixfold.api.gateway.batches.runner import RouteRunner
from sixfold.api.hosting import openapi as hosting_description
from sixfold.api.hosting import routes as hosting
from sixfold.api.hosting.fal import openapi as fal_openapi
from sixfold.api.hosting.fal import routes as fal
from sixfold.api.hosting.replicate import openapi as replicate_openapi
from sixfold.api.hosting.replicate import routes as replicate
from sixfold.api.imagekit import openapi as image_description
from sixfold.api.imagekit import routes as imagekit
from sixfold.api.media import openapi as media_description
from sixfold.api.media import routes as media
from sixfold.api.memory import openapi as memory_description
from sixfold.api.memory import routes as memory
from sixfold.api.platform import openapi as platform_description
from sixfold.api.platform import routes as platform
from sixfold.api.workflows import openapi as workflows_openapi
from sixfold.api.workflows import routes as workflows
from sixfold.api.workflows.page_views import WorkflowView
from sixfold.app import memory as app_memory
from sixfold.app import storage
from sixfold.app.bootstrap import Application, account_deletion
from sixfold.core.gateway.conversations.responses import CompactionSeal
from sixfold.core.gateway.realtime.client_secrets import ClientSecretSeal
from sixfold.core.predictions.admin_figures import DayFigures
from sixfold.core.predictions.duration_estimates import DurationEstimator
from sixfold.core.predictions.event_history import EventHistories
from sixfold.mcp import app as mcp
from sixfold.ui import routes as ui
from sixfold.web.admission import Admission
from sixfold.web.app import WebApp
from sixfold.web.auth import Authenticator
from sixfold.web.idempotency import IdempotencyGuard
from sixfold.web.metrics import Metrics
from sixfold.web.openapi import OpenApiDocument, OpenApiDocuments
from sixfold.web.routing import Entry
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookies, TrustedBrowsers
from sixfold.web.trusted_hosts import TrustedHosts


def create_app(product: Application, local_token: str | None = None) -> ASGIApp:
    """Return the ASGI application of a running `Application` (`bootstrap.running`); it starts and stops
    nothing.

    `local_token` is the credential of the local socket.
    """
    services = build_services(product, local_token)
    metrics = Metrics()
    metrics.add_gateway(product.gateway_runtime.gateway.counts)
    metrics.add_gpus(product.gpu)
    metrics.add_retention(product.retention)
    if product.processes is not None:
        product.processes.own_metrics = partial(metrics.own_text, product.database, product.scheduler)
        metrics.collect_peers = product.processes.metrics
    described = documents(product, lambda: app.table.entries())
    enabled = product.settings.enabled_apis
    spaces = WorkflowView(services) if "workflows" in enabled else None
    pages, start_page = ui.build_apis(services, described, spaces)
    apis = [platform.build_api(services, metrics, described), *pages]
    if "media" in enabled:
        apis.append(media.build_api(services))
    if "gateway" in enabled:
        apis += gateway.build_apis(services)
    if "imagekit" in enabled:
        apis.append(imagekit.build_api(services, start_page))
    else:
        apis.append(ui.build_start_page(start_page))
    if "hosting" in enabled:
        apis += [hosting.build_api(services), replicate.build_api(services), fal.build_api(services)]
    if "memory" in enabled:
        apis.append(memory.build_api(services))
    if "workflows" in enabled:
        apis += workflows.build_apis(services)
    apis.append(mcp.build_api(services))
    is_https = product.settings.public_url.startswith("https://")
    app = WebApp(
        apis,
        metrics,
        ui.build_not_found(services),
        services.admission,
        product.connections,
        is_https=is_https,
    )
    if "gateway" in enabled:
        product.batch_processor.attach(RouteRunner(app, services.authenticator, product.database))
    tracing = product.gateway_runtime.tracing
    return app if tracing is None else tracing.serve(app)


def documents(product: Application, routes: Callable[[], Iterable[Entry]]) -> OpenApiDocuments:
    """Return the OpenAPI documents of the enabled APIs by the name in their path."""
    enabled = product.settings.enabled_apis
    builders: dict[str, Callable[[], OpenApiDocument]] = {"platform": platform_description.document}
    if "media" in enabled:
        builders["media"] = partial(media_description.document, product.catalog)
    if "gateway" in enabled:
        builders["gateway"] = partial(gateway_description.document, product.catalog)
    if "imagekit" in enabled:
        builders["image"] = partial(image_description.document, product.catalog)
    if "hosting" in enabled:
        builders["hosting"] = hosting_description.document
        builders["replicate"] = replicate_openapi.document
        builders["fal"] = fal_openapi.document
    if "memory" in enabled:
        builders["memory"] = memory_description.document
    if "workflows" in enabled:
        builders["workflows"] = workflows_openapi.document
    return OpenApiDocuments(builders, routes)


def build_services(product: Application, local_token: str | None = None) -> WebServices:
    settings, database = product.settings, product.database
    master = storage.server_secret(settings.data_dir, "server.key")
    origins = TrustedHosts(settings)
    admission = Admission(settings, origins)
    times, histories = DurationEstimator(), EventHistories()
    product.bus.watchers += [times.on_event, histories.add]
    return WebServices(
        settings=settings,
        database=database,
        blobs=product.blobs,
        uploads=product.uploads,
        catalog=product.catalog,
        templates=product.templates,
        media=product.media,
        predictions=product.predictions,
        scheduler=product.scheduler,
        durations=times,
        event_histories=histories,
        outbox=product.outbox,
        webhook_secrets=product.webhook_secrets,
        spaces=product.spaces,
        local_spaces=product.local_spaces,
        model_faults=product.model_watcher.faults,
        live_sessions=product.sessions,
        trusted_hosts=origins,
        admission=admission,
        authenticator=Authenticator(
            database, settings, origins, admission.accounts, local_token, product.connections.key_use
        ),
        sessions=SessionCookies(database, settings, origins),
        trusted_browsers=TrustedBrowsers(master, secure=settings.base_url.startswith("https://")),
        idempotency=IdempotencyGuard(database, product.scheduler.boot, settings.inline_seconds),
        memory=product.memory,
        memory_facts=app_memory.facts(settings, database, product.memory, product.gateway_runtime.gateway),
        gateway=product.gateway_runtime.gateway,
        responses=product.gateway_runtime.responses,
        files=product.files,
        conversations=product.gateway_runtime.conversations,
        compactions=CompactionSeal(master),
        client_secrets=ClientSecretSeal(master),
        answers=product.gateway_runtime.answers,
        document_texts=product.document_texts,
        vector_stores=product.vector_stores,
        video_stills=import_string.deferred("sixfold.engines.thumbnails.video:render"),
        batches=product.batches,
        batch_processor=product.batch_processor,
        checkout=product.checkout,
        provider=product.oidc,
        account_deletion=account_deletion(product),
        deposits=product.deposits,
        images=product.image_inspector,
        workflows=product.workflows,
        signer=product.signer,
        availability=product.resources,
        connections=product.connections,
        gpu=product.gpu,
        web_search=product.web_search,
        tool_servers=product.tool_servers,
        configuration=product.operator.configuration,
        provider_keys=product.operator.provider_keys,
        installs=product.operator.installs,
        figures=DayFigures(database),
    )
