"""The public routes of the Hosting API: configuration, templates and hardware."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.api.hosting import schemas
from sixfold.api.hosting.removal import ModelRemoval
from sixfold.core.accounts import rights
from sixfold.core.catalog import hardware
from sixfold.core.catalog.custom_models import CustomModel
from sixfold.core.catalog.hardware import Hardware
from sixfold.core.catalog.models import Model
from sixfold.core.catalog.templates import Template, Templates
from sixfold.core.media import mounts
from sixfold.web import predictions, requests, responses
from sixfold.web.responses import InputSchema, StaticJson, input_schema
from sixfold.web.routing import Handler, RouteEntry
from sixfold.web.services import ServiceHandlers, WebServices

_DEFAULT_IDLE_SECONDS = 120
_SPACE_PORT = 7860
_RUNTIME = "webui-runtime"
OutputKind = Literal["auto", "image", "video", "audio", "json", "text", "file", "model3d"]
OUTPUT_KINDS = get_args(OutputKind)
_SESSION = "/api/containers/sessions/{session_id}"


class ApiPathsSchema(TypedDict):
    """The paths of the API, and how spaces and artifacts are used."""

    queueApi: dict[str, Any]
    sessionsApi: dict[str, Any]
    spacesApi: dict[str, Any]
    artifactMounts: dict[str, Any]
    workflowBridge: dict[str, Any]


_PATHS: ApiPathsSchema = {
    "queueApi": {
        "ensureAndRun": schemas.RUN,
        "join": schemas.JOIN,
        "status": f"{predictions.PATH}/{{prediction_id}}",
    },
    "sessionsApi": {
        "create": "/api/containers/{model_id}/sessions",
        "status": _SESSION,
        "close": _SESSION,
        "ws": "/ws/containers/sessions/{session_id}",
    },
    "spacesApi": {
        "accepts": ["owner/name", "{space_url}/owner/name"],
        "import": "/api/containers/spaces/import",
        "port": _SPACE_PORT,
        "runtime": _RUNTIME,
    },
    "artifactMounts": {
        "inputField": mounts.FIELD,
        "mode": "virtual-object-store",
        "mountPath": mounts.PATH,
        "supported": True,
    },
    "workflowBridge": {
        "node": "SixfoldTemplate",
        "templateRef": "template:{template_name}",
        "workflow": "/api/graph/spaces/api-contract/download",
    },
}


# -- the shapes ------------------------------------------------------------------------------------


class HardwareSchema(TypedDict):
    """One kind of hardware."""

    id: str
    label: str
    gpu: str
    cc: str
    vramGb: int
    ramGb: int
    priceHourText: Annotated[str, msgspec.Meta(examples=["$0.35"])]


class TemplateInterfaceSchema(TypedDict):
    """The inputs and outputs of a template; the last four fields are those of an imported space.

    `extraInputs` are optional inputs beyond the template's published interface.
    """

    inputs: list[InputSchema]
    outputKind: OutputKind
    session: bool
    extraInputs: NotRequired[list[InputSchema]]
    runtime: NotRequired[str]
    apiName: NotRequired[str | None]
    spaceId: NotRequired[str | None]
    dockerArgs: NotRequired[str | None]


class TemplateSchema(TypedDict):
    """A model that is charged by hardware and time."""

    name: str
    image: str
    hardware: str
    description: str
    category: str | None
    repository: str
    upstream: str | None
    license: str
    verified: bool
    tags: list[str]
    schema: TemplateInterfaceSchema
    idleSeconds: float | None
    minVramGb: float | None
    diskGb: float | None
    serverless: bool
    serverlessDockerArgs: str | None
    priceHourText: str
    modelVariants: NotRequired[list[str]]
    defaultModelVariant: NotRequired[str | None]
    version: NotRequired[int]


class ConfigurationSchema(ApiPathsSchema):
    """All templates and hardware, and the paths of the API."""

    success: Literal[True]
    defaultHardware: str
    defaultIdleSecs: float
    outputKinds: list[str]
    hardware: list[HardwareSchema]
    templates: list[TemplateSchema]


def hardware_entry(kind: Hardware) -> HardwareSchema:
    """Return one kind of hardware as the API shows it."""
    return {
        "id": kind.id,
        "label": kind.label,
        "gpu": kind.label,
        "cc": kind.cc,
        "vramGb": kind.vram_gb,
        "ramGb": kind.ram_gb,
        "priceHourText": hardware.hour_text(kind.hour_micros),
    }


def template(metadata: Template, model: Model, idle_seconds: float | None = None) -> TemplateSchema:
    """Return one template; `idle_seconds` overrides its own value if the operator set one for all."""
    schema: TemplateInterfaceSchema = {
        "inputs": [input_schema(item) for item in model.inputs if not item.extra],
        "outputKind": cast("OutputKind", model.output_kind),
        "session": metadata.session,
    }
    extra_inputs = [input_schema(item) for item in model.inputs if item.extra]
    if extra_inputs:
        schema["extraInputs"] = extra_inputs
    if metadata.runtime is not None:
        schema["runtime"] = metadata.runtime
        schema["apiName"] = metadata.api_name
        schema["spaceId"] = metadata.space_id
        schema["dockerArgs"] = metadata.docker_args
    result: TemplateSchema = {
        "name": metadata.name,
        "image": f"sixfold/{metadata.name}",
        "hardware": metadata.hardware,
        "description": model.description,
        "category": metadata.category,
        "repository": metadata.repository,
        "upstream": metadata.upstream,
        "license": metadata.license,
        "verified": metadata.verified,
        "tags": list(metadata.tags),
        "schema": schema,
        "idleSeconds": metadata.idle_seconds if idle_seconds is None else _plain(idle_seconds),
        "minVramGb": metadata.min_vram_gb,
        "diskGb": metadata.disk_gb,
        "serverless": metadata.serverless,
        "serverlessDockerArgs": metadata.serverless_docker_args,
        "priceHourText": hardware.hour_text(metadata.hour_micros),
    }
    if metadata.model_variants:
        result["modelVariants"] = list(metadata.model_variants)
        result["defaultModelVariant"] = metadata.default_model_variant
    return result


def _found_template(model: Model, templates: Templates, idle_seconds: float | None) -> TemplateSchema:
    """Return a model that was found on this machine as a template; it is charged at its own price."""
    rate = templates.hardware_rate(model.name, model.hardware)
    metadata = Template(
        name=model.name,
        hardware=rate.hardware,
        hour_micros=rate.hour_micros,
        repository="",
        license="",
        category="Image",
        tags=(model.name.partition("/")[0],),
        idle_seconds=_DEFAULT_IDLE_SECONDS,
    )
    return template(metadata, model, idle_seconds)


def own_template(own: CustomModel, templates: Templates, idle_seconds: float | None = None) -> TemplateSchema:
    """Return a custom model as a template; fields under `template` in its document take precedence."""
    rate = templates.hardware_rate(own.name, own.model.hardware)
    metadata = Template(
        name=own.name,
        hardware=rate.hardware,
        hour_micros=rate.hour_micros,
        repository="",
        license="",
        tags=(own.kind,),
        idle_seconds=_DEFAULT_IDLE_SECONDS,
    )
    result = template(metadata, own.model, idle_seconds)
    overrides: dict[str, Any] = own.document.get("template", {})
    schema = {**result["schema"], **overrides.get("schema", {})}
    return cast("TemplateSchema", {**result, **overrides, "schema": schema, "version": own.version})


def _plain(seconds: float) -> float | int:
    return int(seconds) if float(seconds).is_integer() else seconds


# -- the routes ------------------------------------------------------------------------------------


class HostedModelList(ServiceHandlers):
    """Lists the models and hardware. The built-in part is encoded once."""

    def __init__(self, services: WebServices) -> None:
        super().__init__(services)
        self._idle_seconds = services.settings.idle_seconds
        templates = {model["name"]: model for model in self._built_in()}
        kinds = [hardware_entry(kind) for kind in services.templates.hardware.kinds()]
        self._templates = list(templates.values())
        self._each = {name: StaticJson(each) for name, each in templates.items()}
        self._list = StaticJson({"templates": self._templates})
        self._hardware = StaticJson({"hardware": kinds})
        idle = _DEFAULT_IDLE_SECONDS if self._idle_seconds is None else _plain(self._idle_seconds)
        configuration: ConfigurationSchema = {
            "success": True,
            "defaultHardware": hardware.DEFAULT,
            "defaultIdleSecs": idle,
            "outputKinds": list(OUTPUT_KINDS),
            "hardware": kinds,
            "templates": self._templates,
            **_PATHS,
        }
        self._config = StaticJson(configuration)

    def _built_in(self) -> Iterator[TemplateSchema]:
        for metadata in self._services.templates:
            if metadata.name in self._services.catalog:
                yield template(metadata, self._services.catalog[metadata.name], self._idle_seconds)

    async def config(self, request: Request) -> Response:
        return self._config.response(request)

    async def hardware(self, request: Request) -> Response:
        return self._hardware.response(request)

    async def templates(self, request: Request) -> Response:
        """Return all templates and, for a key, ComfyUI's models and a page of custom models."""
        principal = await self._enter_to_run(request)
        if principal is None:
            return self._list.response(request)
        models, next_cursor = await requests.own_models(
            self._services.predictions.custom_models, request, principal.account_id
        )
        permitted = (model for model in models if principal.allows(model.name))
        encoded = await responses.encode_each(self._own(model) for model in permitted)
        built_in = [] if requests.cursor(request) else [*self._templates, *self._found()]
        headers = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
        return responses.json({"templates": [*built_in, *encoded], "next_cursor": next_cursor}, 200, headers)

    async def one(self, request: Request) -> Response:
        name = requests.path_value(request, "name")
        if name in self._each:
            return self._each[name].response(request)
        principal = await self._enter_to_run(request)
        if principal is None:
            raise errors.NotFound(f"Template {name} not found")
        if model := self._services.catalog.discovered.get(name):
            entry = _found_template(model, self._services.templates, self._idle_seconds)
            return responses.json(entry, 200, {"Cache-Control": "private, no-cache"})
        principal.permit(name)
        custom_model = await self._services.predictions.custom_models.find(name, principal.account_id)
        return responses.json(self._own(custom_model), 200, {"Cache-Control": "private, no-cache"})

    def _found(self) -> Iterator[TemplateSchema]:
        for model in self._services.catalog.discovered.values():
            yield _found_template(model, self._services.templates, self._idle_seconds)

    def _own(self, own: CustomModel) -> TemplateSchema:
        return own_template(own, self._services.templates, self._idle_seconds)


def routes(services: WebServices, import_image: Handler) -> tuple[RouteEntry, ...]:
    """Return the public routes, and the one that imports a container image."""
    model_list = HostedModelList(services)
    return (
        RouteEntry(
            "/api/containers/config",
            {"GET": model_list.config, "HEAD": model_list.config},
            access=rights.PUBLIC,
        ),
        RouteEntry(
            "/api/containers/templates",
            {"GET": model_list.templates, "POST": import_image},
            services.settings.json_body_bytes,
            access={"GET": rights.PUBLIC, "POST": rights.RUN_PROGRAMS},
        ),
        RouteEntry(
            "/api/containers/templates/{name:path}",
            {"GET": model_list.one, "DELETE": ModelRemoval(services).remove},
            access={"GET": rights.PUBLIC, "DELETE": rights.RUN_ACCOUNT_READ},
        ),
        RouteEntry("/api/containers/hardware", {"GET": model_list.hardware}, access=rights.PUBLIC),
    )
