"""The routes of the shared endpoints."""

from __future__ import annotations

from sixfold.api.platform import account_data, guardrails, oauth, payments, shares
from sixfold.api.platform.engines import EngineRoutes
from sixfold.api.platform.health import HealthRoutes
from sixfold.api.platform.openapi_documents import OpenApiRoutes
from sixfold.api.platform.operator import alerts, backups, configuration, figures, installs
from sixfold.api.platform.operator import routes as operator
from sixfold.api.platform.organization import routes as organization
from sixfold.api.platform.stored_files import StoredFileRoutes
from sixfold.api.platform.uploads import UploadRoutes
from sixfold.core.accounts import rights
from sixfold.web import responses
from sixfold.web.metrics import Metrics
from sixfold.web.openapi import OpenApiDocuments
from sixfold.web.routing import ApiGroup, RouteEntry
from sixfold.web.services import WebServices


def build_api(services: WebServices, metrics: Metrics, documents: OpenApiDocuments) -> ApiGroup:
    uploads, media = UploadRoutes(services), StoredFileRoutes(services)
    health = HealthRoutes(services, metrics)
    reference = OpenApiRoutes(documents, services.settings.base_url)
    # The image utility API has this route where it is enabled.
    own_health = RouteEntry("/health", {"GET": health.live, "HEAD": health.live}, access=rights.PUBLIC)
    alone = "imagekit" not in services.settings.enabled_apis
    return ApiGroup(
        "platform",
        responses.error_response,
        (
            RouteEntry(
                "/api/uploads", {"POST": uploads.take}, services.settings.upload_body_bytes, access=rights.RUN
            ),
            RouteEntry("/media/{name}", {"GET": media.named, "HEAD": media.named}, access=rights.PUBLIC),
            RouteEntry(
                "/uploads/{path:path}", {"GET": media.uploaded, "HEAD": media.uploaded}, access=rights.PUBLIC
            ),
            RouteEntry("/livez", {"GET": health.live}, access=rights.PUBLIC),
            *((own_health,) if alone else ()),
            RouteEntry("/readyz", {"GET": health.ready}, access=rights.PUBLIC),
            RouteEntry("/metrics", {"GET": health.metrics}, access=rights.OPERATE),
            RouteEntry("/api/engines", {"GET": EngineRoutes(services).show}, access=rights.OPERATE),
            RouteEntry("/openapi/{area}", {"GET": reference.show}, access=rights.PUBLIC),
            *account_data.routes(services),
            *guardrails.routes(services),
            *shares.routes(services),
            *oauth.routes(services),
            *payments.routes(services),
            *organization.routes(services),
            *operator.routes(services),
            *configuration.routes(services),
            *installs.routes(services),
            *backups.routes(services),
            *alerts.routes(services),
            *figures.routes(services),
        ),
    )
