"""`GET /api/engines`: the resources of this installation and the engine of each model, for the operator."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from sixfold import __version__, errors
from sixfold.core.catalog import availability
from sixfold.core.catalog.availability import ReportSchema
from sixfold.core.gpu.report import GpuSchema
from sixfold.web import responses
from sixfold.web.services import ServiceHandlers

_FLAGS = {"true": True, "false": False}


class EnginesSchema(ReportSchema):
    """The resources of this installation, the engine of each model, and GPUs that programs share."""

    version: str
    warnings: Sequence[str]
    gpus: Sequence[GpuSchema]


class EngineRoutes(ServiceHandlers):
    """Handlers that report how the server chooses engines."""

    async def show(self, request: Request) -> Response:
        """Return the resources, engines and models; `refresh=true` detects servers and weights first."""
        await self._enter(request)
        text = request.query_params.get("refresh", "false")
        if text not in _FLAGS:
            raise errors.BadRequest("refresh must be true or false")
        if _FLAGS[text]:
            await self._services.resources.refresh()
        resources = await self._services.resources.resources()
        report = availability.report(self._services.catalog, self._services.predictions.terms, resources)
        warnings = (*self._services.authenticator.keyless.warnings, *self._services.configuration.problems)
        gpus = self._services.gpu.reports()
        document: EnginesSchema = {"version": __version__, "warnings": warnings, "gpus": gpus, **report}
        return responses.json(document, headers={"Cache-Control": "no-store"})
