"""Templates from container images, added by the operator."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting import models_list
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.custom_models import KIND
from sixfold.web import bodies, responses
from sixfold.web.services import ServiceHandlers

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_MAX_IMAGE = 255
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?/)?"  # registry
    r"[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*"  # repository
    r"(?::\w[\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


class ContainerImageRoutes(ServiceHandlers):
    """Imports container images as models."""

    async def post(self, request: Request, principal: Principal) -> Response:
        body = bodies.parse_object(await request.body())
        services, image, hardware = self._services, body.get("image"), body.get("hardware")
        name = body.get("name") or ""
        if not image:
            raise errors.InvalidInput.of("image", "image is required")
        if not isinstance(image, str) or len(image) > _MAX_IMAGE or not _IMAGE.fullmatch(image):
            raise errors.InvalidInput.of("image", "image must be a container image reference")
        if not isinstance(hardware, str | None):
            raise errors.InvalidInput.of("hardware", "hardware must be a string")
        if not isinstance(name, str) or (name and not _NAME.fullmatch(name)):
            raise errors.InvalidInput.of("name", "name must contain only a to z, digits and hyphens")
        if name in services.catalog:
            raise errors.Conflict(f"{name} is the name of a built-in model: choose another name")
        services.templates.hardware_rate(name or image, hardware)
        document = await services.image_inspector.inspect(image, hardware, name)
        name = next(iter(document["models"]))
        record = await services.predictions.custom_models.put(principal.account_id, KIND, name, document)
        result = models_list.own_template(record, services.templates, services.settings.idle_seconds)
        return responses.json({**result, "image": image}, 201)
