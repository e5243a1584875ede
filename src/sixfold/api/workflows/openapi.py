"""The OpenAPI document of workflows; ComfyUI's routes follow ComfyUI's own documentation."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

import msgspec

from sixfold.core.workflows.workflows import PATH
from sixfold.web import openapi
from sixfold.web.openapi import Node, OpenApiDocument, OperationSpec
from sixfold.web.predictions import PredictionSchema

_FILE_OR_FORM = ("multipart/form-data", "image/png", "image/webp")


class WorkflowInputSchema(TypedDict):
    """An input of a workflow, and the node that it sets."""

    name: str
    type: str
    nodeId: str
    field: str
    required: bool
    default: NotRequired[Any]
    description: NotRequired[str]


class WorkflowSchema(TypedDict):
    """A workflow: its inputs, its origin and its graph in ComfyUI's API format."""

    slug: str
    name: str
    description: str
    kind: str
    minVramGb: float
    nodeCount: int
    apiInputs: list[WorkflowInputSchema] | None
    customNodes: list[str] | None
    models: list[dict[str, Any]]
    downloadPath: str
    labs: list[Any]
    tutorials: list[Any]
    openSource: list[dict[str, Any]] | None
    source: dict[str, Any]
    verification: dict[str, Any]
    workflow: dict[str, Any]


class OneWorkflowSchema(WorkflowSchema):
    """One workflow."""

    success: bool


class WorkflowsSchema(TypedDict):
    """A page of workflows."""

    spaces: list[WorkflowSchema]
    success: bool
    next_cursor: NotRequired[str | None]


class WorkflowRunSchema(TypedDict, total=False):
    """The inputs of a run by name."""

    input: dict[str, Any] | None
    wait: Annotated[float, msgspec.Meta(ge=0, le=600, description="seconds to wait for the end")] | None
    webhook: Annotated[str | None, msgspec.Meta(description="a URL that is called at the start and the end")]


class GraphSchema(TypedDict):
    """A graph in ComfyUI's API format or the editor's."""

    workflow: dict[str, Any]
    name: NotRequired[str]


class WorkflowNameSchema(TypedDict):
    """The new name of a workflow."""

    name: str


class WorkflowCopySchema(TypedDict):
    """The name of a copy; by default that of the original with "(copy)"."""

    name: NotRequired[str]


class GraphToValidateSchema(TypedDict):
    """A graph, and whether replaced checkpoints are errors."""

    workflow: dict[str, Any]
    strict_models: NotRequired[bool]


class GraphEstimateSchema(TypedDict):
    """The maximum price of a graph, or the reason why it cannot run."""

    price_usd: str | None
    vram_gb: float | None
    orders: list[dict[str, Any]]
    list_price: NotRequired[str]
    unavailable: NotRequired[str]


class ValidatedGraphSchema(TypedDict):
    """The errors of a graph, or its price if it is valid."""

    valid: bool
    errors: list[dict[str, Any]]
    missing_classes: list[str]
    missing_models: list[dict[str, Any]]
    estimate: GraphEstimateSchema | None


class GraphPairSchema(TypedDict):
    """Two graphs to compare."""

    a: dict[str, Any]
    b: dict[str, Any]


class GraphDifferenceSchema(TypedDict):
    """The difference between two graphs."""

    equal: bool
    added: list[Any]
    removed: list[Any]
    changed: list[dict[str, Any]]
    renamed: dict[str, str]


def document() -> OpenApiDocument:
    return OpenApiDocument(
        "Sixfold Workflows",
        "1.0.0",
        "Graphs of nodes with typed inputs, run as one prediction. ComfyUI's routes are not described here.",
        {**_lists(), **_runs()},
    )


def _lists() -> dict[str, OperationSpec]:
    workflow_response = openapi.response("The workflow", OneWorkflowSchema)
    page = openapi.response("Built-in workflows, then the account's own", WorkflowsSchema)
    file: Node = {
        "type": "object",
        "required": ["file"],
        "properties": {"file": openapi.FILE, "name": {"type": "string"}},
    }
    bodies = {openapi.JSON: GraphSchema, _FILE_OR_FORM[0]: file}
    bodies |= dict.fromkeys(_FILE_OR_FORM[1:], openapi.CONTENT)
    download = openapi.response("The file, unchanged", openapi.FILE, "image/png", "image/webp")
    download["content"][openapi.JSON] = {"schema": {"type": "object"}}
    picture = openapi.response("An SVG image", {"type": "string"}, "image/svg+xml")
    return {
        f"GET {PATH}": OperationSpec(
            "List workflows",
            {200: page},
            (400, 401, 403),
            parameters=(openapi.limit(200, 100), openapi.text("cursor", 200)),
        ),
        f"POST {PATH}": OperationSpec(
            "Import a workflow",
            {201: workflow_response},
            (400, 409, 503),
            bodies=bodies,
            parameters=(openapi.text("name", 200), openapi.IDEMPOTENCY),
        ),
        f"GET {PATH}/{{slug}}": OperationSpec("One workflow", {200: workflow_response}, (401, 403, 404)),
        f"PATCH {PATH}/{{slug}}": OperationSpec(
            "Rename a workflow",
            {200: workflow_response},
            (400, 403, 404, 412),
            WorkflowNameSchema,
            (_IF_MATCH,),
        ),
        f"DELETE {PATH}/{{slug}}": OperationSpec(
            "Delete a workflow", {204: _EMPTY}, (400, 403, 404, 412), parameters=(_IF_MATCH,)
        ),
        f"POST {PATH}/{{slug}}/duplicate": OperationSpec(
            "Copy a workflow",
            {201: workflow_response},
            (400, 404, 409),
            WorkflowCopySchema,
            (openapi.IDEMPOTENCY,),
        ),
        f"GET {PATH}/{{slug}}/download": OperationSpec(
            "Download a workflow", {200: download}, (401, 403, 404)
        ),
        f"GET {PATH}/{{slug}}/graph.svg": OperationSpec("Draw a workflow", {200: picture}, (401, 403, 404)),
    }


def _runs() -> dict[str, OperationSpec]:
    result, queued = (openapi.response(text, PredictionSchema) for text in ("The prediction", "Not finished"))
    return {
        f"POST {PATH}/{{slug}}/run": OperationSpec(
            "Run a workflow",
            {200: result, 202: queued},
            (400, 402, 404, 409, 429, 503),
            WorkflowRunSchema,
            (openapi.IDEMPOTENCY,),
        ),
        "POST /api/graph/validate": OperationSpec(
            "Validate a graph and estimate its price",
            {200: openapi.response("Errors and price", ValidatedGraphSchema)},
            (400, 503),
            GraphToValidateSchema,
        ),
        "POST /api/graph/diff": OperationSpec(
            "Compare two graphs",
            {200: openapi.response("The difference", GraphDifferenceSchema)},
            (400,),
            GraphPairSchema,
        ),
    }


_IF_MATCH: Node = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The version in quotes that is changed, as in the ETag of the workflow",
}
_EMPTY: Node = {"description": "Deleted"}
