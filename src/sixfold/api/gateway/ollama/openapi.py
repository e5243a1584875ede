"""The descriptions of Ollama's routes."""

from __future__ import annotations

from sixfold.api.gateway.ollama import models
from sixfold.api.gateway.ollama.responses import LINES, OllamaErrorSchema
from sixfold.web import openapi
from sixfold.web.openapi import Node, OperationSpec, Shape, Text

_STATUSES = (400, 404, 429, 502, 503)
_OBJECT: Node = {"type": "object"}
_OPTIONS: Node = {"stream": bool, "options": _OBJECT, "think": {"type": ["boolean", "string"]}}
_REFUSED = (
    "POST push",
    "POST create",
    "POST copy",
    "DELETE delete",
    "GET blobs/{digest}",
    "POST blobs/{digest}",
)


def operations() -> dict[str, OperationSpec]:
    running = openapi.response("Running", {"type": "string"}, "text/plain")
    version = openapi.shape("OllamaVersion", version=str)
    tags = openapi.shape("OllamaTags", models=list[models.OllamaModelSchema])
    loaded = openapi.shape("OllamaLoadedModels", models=list[models.OllamaLoadedSchema])
    status = openapi.shape("OllamaStatus", status=str)
    answer = openapi.response(
        "The response, or one object a line with `stream`", _OBJECT, openapi.JSON, LINES
    )
    model_body = _body({"model": Text})
    turns: Node = {"type": "array", "items": {"type": "object", "required": ["role"]}}
    texts: Node = {"anyOf": [Text, {"type": "array", "items": Text, "minItems": 1}]}
    vectors = openapi.response("The vectors", {"type": "object", "required": ["embeddings"]})
    vector = openapi.response("The vector", {"type": "object", "required": ["embedding"]})
    rows: dict[str, tuple[str, Node, Shape]] = {
        "GET version": ("Version of the API", openapi.response("The version", version), None),
        "GET tags": ("List models", openapi.response("Every model", tags), None),
        "GET ps": ("List loaded models", openapi.response("Loaded models", loaded), None),
        "POST show": ("Get a model", openapi.response("The model", models.OllamaShowSchema), model_body),
        "POST chat": ("Chat", answer, _body({"model": Text}, {"messages": turns, **_OPTIONS})),
        "POST generate": ("Complete a prompt", answer, _body({"model": Text}, {"prompt": str, **_OPTIONS})),
        "POST embed": ("Create embeddings", vectors, _body({"model": Text, "input": texts})),
        "POST embeddings": ("Create one embedding", vector, _body({"model": Text, "prompt": Text})),
        "POST pull": ("Check that a model is here", openapi.response("It is", status), model_body),
    }
    rows |= {name: ("Always returns 403: models belong to the operator", {}, None) for name in _REFUSED}
    described = {
        name.replace(" ", " /ollama/api/"): OperationSpec(
            summary, {200: good} if good else {}, _STATUSES, body, error=OllamaErrorSchema
        )
        for name, (summary, good, body) in rows.items()
    }
    for path in ("/ollama", "/ollama/"):
        described[f"GET {path}"] = OperationSpec(
            "Recognize Ollama", {200: running}, operation_id=f"ollama{len(path)}", error=OllamaErrorSchema
        )
    return described


def _body(required: Node, optional: Node | None = None) -> Node:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}
