"""The initial values of a run form: the example, the inputs of an earlier run, or its output."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request

from sixfold import errors
from sixfold.core import gallery
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.models import Model
from sixfold.core.gateway.conversations.chats import ChatStore
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import lineage
from sixfold.core.predictions.history.titles import title_of
from sixfold.core.predictions.models import Prediction
from sixfold.core.shares import objects, shares
from sixfold.core.shares.text_inputs import text_inputs
from sixfold.ui.auth import PageUser
from sixfold.ui.catalog import example_outputs, next_models
from sixfold.ui.chat import messages
from sixfold.ui.templating import model_title
from sixfold.web.services import WebServices

# The value of `from` for the inputs of the card's example.
_EXAMPLE = "example"
_POST, _CHAT = "post_", "conv_"
_OPTIONS = ("hardware", "variant")
# The query parameters that choose the values of a form.
_PARAMETERS = ("from", "as", "item", "share", "run")


class SharedResult(msgspec.Struct, frozen=True):
    """The paths of a page that shows a result, and of the image on it."""

    page: str
    image: str


class InitialValues(msgspec.Struct, frozen=True):
    """Inputs and options (hardware, variant) of a form, and the id of the run that it shows, or "".

    `labels` maps file inputs to labels: the prompts of the runs that generated the files. `shared` is the
    result that the form starts from, if it is an image of a share or a post.
    """

    inputs: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    run: str = ""
    labels: Mapping[str, str] = {}
    shared: SharedResult | None = None


def query_of(request: Request) -> str:
    """Return the query that opens the same form again, such as `?from=example`, or ""."""
    parameters = {name: request.query_params[name] for name in _PARAMETERS if name in request.query_params}
    return f"?{urlencode(parameters)}" if parameters else ""


async def of_request(
    services: WebServices, request: Request, user: PageUser | None, model: Model
) -> InitialValues:
    """Return the values that the query names.

    `run` is a run of this model, which the page shows again; an unknown ID is ignored, since the run may
    have been deleted. `from` is the example or a prediction; with `as`, the output of that prediction is
    the input of this name. For a post of the gallery, the values are the inputs that its author published;
    for `share`, the token of a shared run, those that its page shows. For a chat with `item` and `as`, the
    text of this message is the input. Raises `NotFound` for an unknown
    prediction, post or share.
    """
    query = request.query_params
    origin = query.get("from", "")
    examples = example_outputs.by_model()
    if origin == _EXAMPLE and model.name in examples:
        return InitialValues(examples[model.name].inputs)
    if origin.startswith(_POST):
        post = await services.database.read(gallery.get_post(origin))
        if post.model != model.name:
            raise errors.NotFound(f"The post used a model other than {model.name}")
        inputs = {name: value for name, value in post.inputs.items() if model.takes(name)}
        return InitialValues(inputs, shared=_posted(post))
    if query.get("share"):
        return await _shared(services, user, model, query["share"])
    if user is None:
        return InitialValues()
    run = query.get("run", "")
    if run:
        with contextlib.suppress(errors.NotFound):
            prediction = await services.predictions.get(run, user.tenant)
            if prediction.model == model.name:
                return await _values_of_run(services, model, prediction, run)
    if not origin or origin == _EXAMPLE:
        return InitialValues()
    return await _from_output(services, user, model, query)


async def _from_output(
    services: WebServices, user: PageUser, model: Model, query: Mapping[str, str]
) -> InitialValues:
    """Return the inputs of a run, or with `as` the output of a run or a message of a chat as an input."""
    origin, name = query["from"], query.get("as", "")
    if origin.startswith(_CHAT):
        chats = ChatStore(services.database, services.conversations)
        text = await chat_text(chats, user.tenant, origin, query.get("item", ""))
        return InitialValues(_text_value(model, name, text))
    prediction = await services.predictions.get(origin, user.tenant)
    if name:
        labels = {name: title_of(prediction.inputs) or model_title(services.catalog, prediction.model)}
        return InitialValues(_output_as(services, model, prediction, name), labels=labels)
    return await _values_of_run(services, model, prediction)


async def chat_text(chats: ChatStore, tenant: Tenant, chat_id: str, item_id: str) -> str:
    """Return the text of a message; raises `ConversationNotFound` or `ItemNotFound`."""
    item = await chats.item(tenant, chat_id, item_id)
    message = messages.parse(item.id, item.place, item.item)
    return "" if message is None else message.text


async def _values_of_run(
    services: WebServices, model: Model, prediction: Prediction, run: str = ""
) -> InitialValues:
    base = services.settings.base_url
    inputs = await services.database.read(lineage.reusable_inputs(prediction, base))
    options = {"hardware": prediction.hardware, "variant": prediction.task.inputs.get("variant")}
    values = {name: value for name, value in inputs.items() if model.takes(name)}
    return InitialValues(values, {name: options[name] for name in _OPTIONS if options[name]}, run)


async def _shared(services: WebServices, user: PageUser | None, model: Model, token: str) -> InitialValues:
    """Return the inputs and the image that the page of a shared run shows."""
    viewer = None if user is None else user.principal
    share = await services.database.read(shares.opened(token, viewer), snapshot=False)
    if share.kind != "run":
        raise errors.NotFound("The link does not share a run")
    prediction = await objects.run(services.database, share.tenant, share.object_id)
    if prediction.model != model.name:
        raise errors.NotFound(f"The shared run used the model {prediction.model}, not {model.name}")
    path, files = shares.path_of(token), () if prediction.output is None else prediction.output.files
    image = None
    if files and _is_picture(files[0].content_type):
        # The name that the share gives its first file.
        image = SharedResult(path, f"{path}/files/0.{files[0].name.rpartition('.')[2]}")
    return InitialValues(text_inputs(prediction.inputs, model), shared=image)


def _posted(post: gallery.Post) -> SharedResult | None:
    if not _is_picture(post.content_type):
        return None
    return SharedResult(f"/gallery/posts/{post.id}", f"{MEDIA_PATH}{post.media}")


def _is_picture(content_type: str) -> bool:
    return content_type.startswith("image/") and "svg" not in content_type


def _output_as(services: WebServices, model: Model, prediction: Prediction, name: str) -> dict[str, Any]:
    """Return the first output of a prediction as the input `name`."""
    output = prediction.output
    if output is None or not model.takes(name):
        return {}
    if output.files:
        return {name: services.media_url(output.files[0])}
    return _text_value(model, name, next_models.text_of(output.first.data))


def _text_value(model: Model, name: str, text: str) -> dict[str, Any]:
    """Return a text as the input `name`; an input with several texts gets its lines."""
    if not text or not model.takes(name):
        return {}
    is_list = any(each.name == name and each.type == "texts" for each in model.inputs)
    return {name: [line for line in text.splitlines() if line.strip()] if is_list else text}
