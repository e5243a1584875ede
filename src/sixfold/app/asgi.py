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
from sixfold.core.gallery import Gallery
from sixfold.core.gateway.conversations.responses import CompactionCipher
from sixfold.core.gateway.realtime.client_secrets import ClientSecretCipher
from sixfold.core.media.private_copies import PrivateCopies
from sixfold.core.predictions.admin_figures import DayFigures
from sixfold.core.predictions.duration_estimates import DurationEstimator
from sixfold.core.predictions.event_history import EventHistories
from sixfold.core.secret_cipher import SecretCipher
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


def create_app(application: Application, local_token: str | None = None) -> ASGIApp:
    """Return the ASGI application of a running `Application`, which is neither started nor stopped.

    `local_token` is the credential of the local socket.
    """
    services = build_services(application, local_token)
    metrics = Metrics()
    metrics.add_gateway(application.gateway_runtime.gateway.counts)
    metrics.add_gpus(application.gpu)
    metrics.add_retention(application.retention)
    if application.processes is not None:
        application.processes.own_metrics = partial(
            metrics.own_text, application.database, application.scheduler
        )
        metrics.collect_peers = application.processes.metrics
    openapi_documents = documents(application, lambda: app.table.entries())
    enabled = application.settings.enabled_apis
    spaces = WorkflowView(services) if "workflows" in enabled else None
    pages, start_page = ui.build_apis(services, openapi_documents, spaces)
    apis = [platform.build_api(services, metrics, openapi_documents), *pages]
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
    elif enabled & {"gateway", "workflows"}:
        apis.append(hosting.build_predictions(services))
    if "memory" in enabled:
        apis.append(memory.build_api(services))
    if "workflows" in enabled:
        apis += workflows.build_apis(services)
    apis.append(mcp.build_api(services))
    is_https = application.settings.public_url.startswith("https://")
    app = WebApp(
        apis,
        metrics,
        ui.build_not_found(services),
        services.admission,
        application.connections,
        is_https=is_https,
    )
    if "gateway" in enabled:
        application.batch_processor.attach(RouteRunner(app, services.authenticator, application.database))
    tracing = application.gateway_runtime.tracing
    return app if tracing is None else tracing.serve(app)


def documents(application: Application, routes: Callable[[], Iterable[Entry]]) -> OpenApiDocuments:
    """Return the OpenAPI documents of the enabled APIs by the name in their path."""
    enabled = application.settings.enabled_apis
    builders: dict[str, Callable[[], OpenApiDocument]] = {"platform": platform_description.document}
    if "media" in enabled:
        builders["media"] = partial(media_description.document, application.catalog)
    if "gateway" in enabled:
        builders["gateway"] = partial(gateway_description.document, application.catalog)
    if "imagekit" in enabled:
        builders["image"] = partial(image_description.document, application.catalog)
    if "hosting" in enabled:
        builders["hosting"] = hosting_description.document
        builders["replicate"] = replicate_openapi.document
        builders["fal"] = fal_openapi.document
    if "memory" in enabled:
        builders["memory"] = memory_description.document
    if "workflows" in enabled:
        builders["workflows"] = workflows_openapi.document
    return OpenApiDocuments(builders, routes)


def build_services(application: Application, local_token: str | None = None) -> WebServices:
    settings, database = application.settings, application.database
    server_key = storage.server_secret(settings.data_dir, "server.key")
    origins = TrustedHosts(settings)
    admission = Admission(settings, origins)
    copies = PrivateCopies(application.media, application.signer, settings.scratch_dir / "published")
    times, histories = DurationEstimator(), EventHistories()
    application.bus.watchers += [times.on_event, histories.add]
    return WebServices(
        **application.core_services(),
        durations=times,
        event_histories=histories,
        model_faults=application.model_watcher.faults,
        trusted_hosts=origins,
        admission=admission,
        authenticator=Authenticator(
            database, settings, origins, admission.accounts, local_token, application.key_use
        ),
        sessions=SessionCookies(database, settings, origins),
        trusted_browsers=TrustedBrowsers(server_key, secure=settings.base_url.startswith("https://")),
        idempotency=IdempotencyGuard(database, application.scheduler.boot, settings.inline_seconds),
        gallery=Gallery(database, application.media, copies),
        memory_facts=app_memory.facts(
            settings, database, application.memory, application.gateway_runtime.gateway
        ),
        gateway=application.gateway_runtime.gateway,
        responses=application.gateway_runtime.responses,
        conversations=application.gateway_runtime.conversations,
        compactions=CompactionCipher(server_key),
        client_secrets=ClientSecretCipher(server_key),
        upload_tickets=SecretCipher(server_key, b"sixfold upload ticket"),
        response_tasks=application.gateway_runtime.response_tasks,
        video_stills=import_string.deferred("sixfold.engines.thumbnails.video:render"),
        account_deletion=account_deletion(application),
        configuration=application.operator.configuration,
        provider_keys=application.operator.provider_keys,
        installs=application.operator.installs,
        backups=application.operator.backups,
        figures=DayFigures(database),
    )
