"""Models of the Replicate-compatible API: lists, versions, search and collections.

A model is `sixfold/NAME`, or a public name of Replicate that is mapped to one.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting.public_names import PublicModel, PublicNames
from sixfold.api.hosting.replicate import schemas
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.models import Model
from sixfold.core.catalog.tasks import TASKS
from sixfold.web import requests, responses
from sixfold.web.services import ServiceHandlers, WebServices

_MAX_QUERY_CHARS = 200
_MAX_FOUND = 50
# The id of a model's version.
_VERSION = re.compile(r"[0-9a-f]{64}")


class NamedModel(msgspec.Struct, frozen=True):
    """A model, and the public name by which it was requested."""

    model: Model
    public: PublicModel | None = None


class ReplicateModels(ServiceHandlers):
    """Handlers for models."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._base_url = services.settings.base_url
        self.names = PublicNames("replicate")
        catalog = services.catalog
        self._built_in = [
            *(NamedModel(model) for model in catalog.models()),
            *(NamedModel(catalog[row.model], row) for row in self.names if row.model in catalog),
        ]
        current = [
            (schemas.public_version(named_model.model, named_model.public), named_model)
            for named_model in self._built_in
        ]
        self._versions = dict(current)
        self._versions |= {
            version: named_model
            for named_model in self._built_in
            if named_model.public is not None
            for version in named_model.public.versions
        }
        self._current = {_name(named_model): version for version, named_model in current}

    async def page(self, request: Request) -> Response:
        """Return a page of all models, custom models after the built-in ones."""
        principal = await self._enter(request)
        custom_models, next_cursor = await requests.own_models(
            self._services.predictions.custom_models, request, principal.account_id
        )
        built_in = () if requests.cursor(request) else self._built_in
        models = (*built_in, *(NamedModel(custom_model.model) for custom_model in custom_models))
        rows = await responses.encode_each(
            self._render(model) for model in models if _allowed(principal, model)
        )
        more = f"{self._base_url}{schemas.BASE}/models?{urlencode({'cursor': next_cursor})}"
        return _page(rows, more if next_cursor else None)

    async def search(self, request: Request) -> Response:
        """Return the models whose name or description contains every word of the body (`QUERY /models`)."""
        principal = await self._enter(request)
        query = (await request.body())[: 4 * _MAX_QUERY_CHARS].decode("utf-8", "replace")
        return _page([self._render(model) for model in self._found(query, principal)])

    async def search_all(self, request: Request) -> Response:
        """Return the models and collections that match `query`."""
        principal = await self._enter(request)
        query = requests.query_text(request, "query", _MAX_QUERY_CHARS)
        limit = requests.page_size(request, 20, _MAX_FOUND, _MAX_QUERY_CHARS)
        documents: list[dict[str, Any]] = [
            {"model": self._render(model), "metadata": {"tags": [], "score": 1.0}}
            for model in self._found(query, principal)[:limit]
        ]
        words = query.lower().split()
        collections = [
            self._collection(task) for task in TASKS if all(word in task.lower() for word in words)
        ]
        return responses.json({"query": query, "models": documents, "collections": collections, "pages": []})

    async def model(self, request: Request) -> Response:
        return responses.json(self._render(await self.named(request, await self._enter(request))))

    async def versions(self, request: Request) -> Response:
        """Return the versions of a model, which are only the current one."""
        model = await self.named(request, await self._enter(request))
        return _page([schemas.version(model.model, model.public)])

    async def version(self, request: Request) -> Response:
        model = await self.named(request, await self._enter(request))
        version = schemas.version(model.model, model.public)
        published = () if model.public is None else model.public.versions
        if requests.path_value(request, "version") not in (version["id"], *published):
            raise errors.NotFound("The model does not have this version")
        return responses.json(version)

    async def collections(self, request: Request) -> Response:
        await self._enter(request)
        return _page([self._collection(task) for task in TASKS])

    async def collection(self, request: Request) -> Response:
        principal = await self._enter(request)
        slug = requests.path_value(request, "slug")
        for task in TASKS:
            if _slug(task) == slug:
                matches = [
                    model
                    for model in self._built_in
                    if model.model.task == task and _allowed(principal, model)
                ]
                return responses.json(
                    {**self._collection(task), "models": [self._render(model) for model in matches]}
                )
        raise errors.NotFound(f"The collection {slug[:100]!r} was not found")

    async def named(self, request: Request, principal: Principal) -> NamedModel:
        owner, name = requests.path_value(request, "owner"), requests.path_value(request, "name")
        return await self._find(f"{owner}/{name}", principal)

    async def by_version(self, identifier: Any, principal: Principal) -> NamedModel:
        """Return the model for a version id, for `owner/name`, for `owner/name:id`, or for a name alone."""
        if not isinstance(identifier, str) or not identifier:
            raise errors.InvalidInput([errors.Problem("version", "version is required", "missing")])
        if identifier in self._versions:
            return self._versions[identifier]
        reference, _, version = identifier.partition(":")
        if "/" in reference:
            model = await self._find(reference, principal)
            published = () if model.public is None else model.public.versions
            if version in ("", schemas.public_version(model.model, model.public), *published):
                return model
        with contextlib.suppress(errors.NotFound):
            return NamedModel(await self._services.predictions.find(identifier, principal.account_id))
        if _VERSION.fullmatch(identifier):
            for name in await self._services.predictions.custom_models.names(principal.account_id):
                if identifier.startswith(schemas.name_digest(name)):
                    model = await self._services.predictions.find(name, principal.account_id)
                    if schemas.version_of(model) == identifier:
                        return NamedModel(model)
        message = "version not found"
        raise errors.InvalidInput([errors.Problem("version", message, "value_error")])

    def current(self, model: str, public: PublicModel | None) -> str:
        """Return the id of the current version of a prediction's model; "" if the model was removed."""
        return self._current.get(public.name if public is not None else f"{schemas.OWNER}/{model}", "")

    async def _find(self, reference: str, principal: Principal) -> NamedModel:
        public = self.names.find(reference)
        if public is not None and public.model in self._services.catalog:
            return NamedModel(self._services.catalog[public.model], public)
        owner, _, name = reference.partition("/")
        if owner != schemas.OWNER:
            raise errors.NotFound(
                f"Model {reference[:100]} not found: models of this server have the owner {schemas.OWNER}, "
                f"and GET {schemas.BASE}/models lists the Replicate names that they also have"
            )
        if name not in self._services.catalog:
            principal.permit(name)
        return NamedModel(await self._services.predictions.find(name, principal.account_id))

    def _found(self, query: str, principal: Principal) -> list[NamedModel]:
        words = query[:_MAX_QUERY_CHARS].lower().split()
        return [
            named_model
            for named_model in self._built_in
            if _allowed(principal, named_model)
            and all(
                word
                in f"{_name(named_model)} {named_model.model.title} {named_model.model.description}".lower()
                for word in words
            )
        ][:_MAX_FOUND]

    def _render(self, named_model: NamedModel) -> schemas.ReplicateModelSchema:
        is_custom = named_model.model.name not in self._services.catalog
        return schemas.model(named_model.model, self._base_url, own=is_custom, public=named_model.public)

    def _collection(self, task: str) -> schemas.ReplicateCollectionSchema:
        return {"name": task, "slug": _slug(task), "description": f"Models for {task}"}


def _allowed(principal: Principal, named_model: NamedModel) -> bool:
    return principal.allows(named_model.model.name)


def _name(named_model: NamedModel) -> str:
    return (
        named_model.public.name
        if named_model.public is not None
        else f"{schemas.OWNER}/{named_model.model.name}"
    )


def _slug(task: str) -> str:
    return task.lower().replace(" ", "-")


def _page(rows: list[Any], more: str | None = None) -> Response:
    return responses.json({"next": more, "previous": None, "results": rows})
