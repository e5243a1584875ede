"""`DELETE /api/containers/templates/{name}`: an account removes one of its models.

Removing a model of a container image requires the right that adding one requires. A model of a Python file
cannot be removed here, because the server would register the file again after a restart.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.catalog import custom_models, trained_models
from sixfold.core.predictions.history import deletion
from sixfold.core.workflows.workflows import PREFIX
from sixfold.web import requests
from sixfold.web.services import ServiceHandlers, WebServices


class ModelRemoval(ServiceHandlers):
    """Removes own models, imported spaces and trained models with their trainings."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)

    async def remove(self, request: Request) -> Response:
        """Remove a model; a trained model is removed with its images and weights.

        Raises `NotFound`, `Forbidden` for a model of all accounts and for a model of a container image
        without the right to add one, and `Conflict` for a workflow, which has its own route, and for a
        model of a Python file.
        """
        principal = await self._enter(request)
        principal.require_all_models()
        name, models = requests.path_value(request, "name"), self._services.predictions.custom_models
        try:
            # An account may have had a model before one of this name was found in ComfyUI.
            model = await models.find(name, principal.account_id)
        except errors.NotFound:
            self._refuse_shared(name)
            raise
        if name.startswith(PREFIX):
            raise errors.Conflict(f"{name[:100]} is a workflow: use DELETE /api/graph/spaces/{{slug}}")
        if model.kind == custom_models.KIND:
            principal.require(rights.OPERATE)
        if "file" in model.document:
            raise errors.Conflict(f"{name[:100]} comes from a file: use `sixfold model remove {name[:100]}`")
        is_trained = model.kind == trained_models.KIND
        cleanup = deletion.finish_model_removal(principal.account_id, name, is_trained=is_trained)
        await models.remove(principal.account_id, name, cleanup=cleanup)
        return Response(status_code=204)

    def _refuse_shared(self, name: str) -> None:
        """Raise `Forbidden` for a listed model that belongs to no account."""
        services = self._services
        if name in services.templates and name in services.catalog:
            raise errors.Forbidden(f"{name} is built in and cannot be removed")
        if name in services.catalog.discovered:
            raise errors.Forbidden(
                f"{name[:100]} was found in ComfyUI or in a folder of weights: remove it there"
            )
