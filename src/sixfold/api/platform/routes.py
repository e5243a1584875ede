"""The platform's routes."""

from __future__ import annotations

from sixfold.api.platform import account_data, oauth, payments
from sixfold.api.platform.engines import Engines
from sixfold.api.platform.health import Health
from sixfold.api.platform.media import MediaFiles
from sixfold.api.platform.openapi_documents import Reference
from sixfold.api.platform.uploads import Uploads
from sixfold.core.accounts import rights
from sixfold.web import responses
from sixfold.web.metrics import Metrics
from sixfold.web.openapi import Documents
from sixfold.web.routing import Face, Route
from sixfold.web.services import Services


def face(services: Services, metrics: Metrics, documents: Documents) -> Face:
    """Uploads, files, the account, health."""
    uploads, media = Uploads(services), MediaFiles(services)
    health = Health(services, metrics)
    reference = Reference(documents, services.settings.base_url)
    return Face(
        "platform",
        responses.coded,
        (
            Route(
                "/api/uploads", {"POST": uploads.take}, services.settings.upload_body_bytes, access=rights.RUN
            ),
            Route("/media/{name}", {"GET": media.named, "HEAD": media.named}, access=rights.PUBLIC),
            Route(
                "/uploads/{path:path}", {"GET": media.uploaded, "HEAD": media.uploaded}, access=rights.PUBLIC
            ),
            Route("/livez", {"GET": health.live}, access=rights.PUBLIC),
            Route("/readyz", {"GET": health.ready}, access=rights.PUBLIC),
            Route("/metrics", {"GET": health.metrics}, access=rights.OPERATE),
            Route("/api/engines", {"GET": Engines(services).show}, access=rights.OPERATE),
            Route("/openapi/{area}", {"GET": reference.show}, access=rights.PUBLIC),
            *account_data.routes(services),
            *oauth.routes(services),
            *payments.routes(services),
        ),
    )
