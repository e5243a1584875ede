"""The platform's routes."""

from __future__ import annotations

from collections.abc import Mapping

from sixfold.areas.platform import oauth, payments
from sixfold.areas.platform.accounts import Accounts
from sixfold.areas.platform.health import Health
from sixfold.areas.platform.media import MediaFiles
from sixfold.areas.platform.reference import Reference
from sixfold.areas.platform.uploads import Uploads
from sixfold.web import answers
from sixfold.web.metrics import Metrics
from sixfold.web.openapi import Document
from sixfold.web.routing import Face, Route
from sixfold.web.services import Services


def face(services: Services, metrics: Metrics, documents: Mapping[str, Document]) -> Face:
    """Uploads, files, the account, health."""
    uploads, media = Uploads(services), MediaFiles(services)
    account, health = Accounts(services), Health(services, metrics)
    reference = Reference(documents, services.settings.base_url)
    return Face(
        "platform",
        answers.coded,
        (
            Route("/api/uploads", {"POST": uploads.take}, services.settings.upload_body_bytes),
            Route("/media/{name}", {"GET": media.named, "HEAD": media.named}),
            Route("/uploads/{path:path}", {"GET": media.uploaded, "HEAD": media.uploaded}),
            Route("/api/account", {"GET": account.show}),
            Route("/api/account/ledger", {"GET": account.entries}),
            Route("/livez", {"GET": health.live}),
            Route("/readyz", {"GET": health.ready}),
            Route("/metrics", {"GET": health.metrics}),
            Route("/openapi/{area}", {"GET": reference.show}),
            *oauth.routes(services),
            *payments.routes(services),
        ),
    )
