"""`DELETE /api/containers/templates/{name}`: an account removes one of its models."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.catalog import trained_models
from sixfold.core.predictions.history import deletion
from sixfold.core.workflows.workflows import PREFIX
from sixfold.web import requests
from sixfold.web.services import WebServices


class ModelRemoval:
    """Removes own models, imported spaces and trained models with their trainings."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def remove(self, request: Request) -> Response:
        """Remove a model; a trained model is removed with its images and weights.

        Raises `NotFound`, and `Conflict` for a workflow, which has a route of its own.
        """
        principal = await self._services.authenticator.bearer(request)
        principal.require_all_models()
        name, models = requests.path_value(request, "name"), self._services.predictions.custom_models
        model = await models.find(name, principal.account_id)
        if name.startswith(PREFIX):
            raise errors.Conflict(f"{name[:100]} is a workflow: use DELETE /api/graph/spaces/{{slug}}")
        await models.remove(principal.account_id, name)
        if model.kind == trained_models.KIND:
            trainings = deletion.delete_trainings(principal.account_id, name)
            await self._services.database.write(trainings)
        return Response(status_code=204)
