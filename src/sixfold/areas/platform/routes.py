"""The platform's routes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.areas.platform.accounts import Accounts
from sixfold.areas.platform.health import Health
from sixfold.areas.platform.media import MediaFiles
from sixfold.areas.platform.uploads import Uploads
from sixfold.web import answers
from sixfold.web.metrics import Metrics
from sixfold.web.routing import Face, Route
from sixfold.web.services import Services


def face(services: Services, metrics: Metrics) -> Face:
    """Uploads, files, the account, health."""
    uploads, media = Uploads(services), MediaFiles(services)
    account, health = Accounts(services), Health(services, metrics)
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
        ),
    )


async def nothing(_request: Request) -> Response:
    """In place of a page where pages are not served."""
    raise errors.NotFound
