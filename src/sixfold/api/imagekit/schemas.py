"""Checked inputs of the Image utility API: query strings, and the body of style transfer."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from sixfold import errors
from sixfold.api.imagekit.errors import InvalidImageRequest, Part, ValidationErrorSchema, item, of_inputs
from sixfold.core.accounts.keys import Principal
from sixfold.core.catalog.inputs import Descriptor
from sixfold.core.catalog.models import Model
from sixfold.core.media import save_paths
from sixfold.core.media.media import MediaService
from sixfold.core.media.save_paths import SaveTarget
from sixfold.core.predictions.requests import FileChecks
from sixfold.errors import Problem
from sixfold.web import bodies


def request_inputs(model: Model) -> list[Descriptor]:
    """Return the inputs of a request: all but `format`, which `Accept` or the path determines."""
    return [descriptor for descriptor in model.inputs if descriptor.name != "format"]


def image_inputs(request: Request, model: Model) -> dict[str, Any]:
    """Return the inputs of a query string; raises `InvalidImageRequest`."""
    texts: dict[str, Any] = {
        request_input.name: request.query_params[request_input.name]
        for request_input in request_inputs(model)
        if request_input.name in request.query_params
    }
    return _checked("query", model, bodies.from_text(model.inputs, texts))


def upload(request: Request, model: Model, principal: Principal) -> tuple[dict[str, Any], SaveTarget]:
    """Return the inputs of a query string and the path for the image.

    Raises `InvalidImageRequest` with every problem.
    """
    problems: list[ValidationErrorSchema] = []
    inputs: dict[str, Any] = {}
    try:
        inputs = image_inputs(request, model)
    except InvalidImageRequest as error:
        problems += error.items
    try:
        place = save_paths.resolve(principal, _save_path(request))
    except errors.InvalidInput as error:
        problems += of_inputs("query", error).items
    else:
        if not problems:
            return {**inputs, "format": place.format}, place
    raise InvalidImageRequest(problems)


def _save_path(request: Request) -> str:
    path = request.query_params.get("save_path")
    if path is None:
        raise errors.InvalidInput([Problem("save_path", "save_path is required", "missing")])
    return path


async def style(request: Request, model: Model, principal: Principal, media: MediaService) -> dict[str, Any]:
    """Return the inputs of a JSON body; raises `InvalidImageRequest` with every problem."""
    try:
        body = await bodies.parse(bodies.parse_object, await request.body())
    except errors.BadRequest as error:
        kind = "model_type" if error.message == bodies.NOT_AN_OBJECT else "json_invalid"
        raise InvalidImageRequest([item("body", Problem("", error.message, kind))]) from error
    inputs = {each.name: body[each.name] for each in request_inputs(model) if each.name in body}
    try:
        model.check(inputs)
    except errors.InvalidInput as invalid:
        complete = await FileChecks(media).complete(invalid, principal.tenant, model, inputs)
        raise of_inputs("body", complete) from invalid
    return inputs


def _checked(part: Part, model: Model, inputs: dict[str, Any]) -> dict[str, Any]:
    try:
        model.check(inputs)
    except errors.InvalidInput as error:
        raise of_inputs(part, error) from error
    return inputs
