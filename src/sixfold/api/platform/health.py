"""Liveness, readiness and metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.database import one
from sixfold.web import responses
from sixfold.web.metrics import CONTENT_TYPE, Metrics
from sixfold.web.services import ServiceHandlers, WebServices


class HealthRoutes(ServiceHandlers):
    """Handlers for orchestrators and Prometheus."""

    def __init__(self, services: WebServices, metrics: Metrics) -> None:
        super().__init__(services)
        self._metrics = metrics

    async def live(self, _request: Request) -> Response:
        """Return 200 while the process responds."""
        return responses.json({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """Return 200 if the database responds and the server is not shutting down."""
        if self._services.predictions.draining:
            raise errors.ShuttingDown
        await self._services.database.read(one("clock"))
        return responses.json({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in the text format of Prometheus, for the operator."""
        await self._enter(request)
        text = await self._metrics.text(self._services.database, self._services.scheduler)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})
