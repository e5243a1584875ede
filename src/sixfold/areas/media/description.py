"""Area A's OpenAPI document, from the table of its endpoints and the models' inputs."""

from __future__ import annotations

from sixfold.areas.media.endpoints import ENDPOINTS, Endpoint
from sixfold.core.work.catalog import Catalog
from sixfold.web import openapi
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_CHARGED: Node = {
    "cost": {"type": "string", "description": "USD as decimal text"},
    "credits_charged": {"type": "integer"},
}
_USED: Node = {"prompt_used": _TEXT, "size_used": _TEXT}
_URL: Node = {"type": "string", "format": "uri"}
_ERROR: Node = {
    "type": "object",
    "required": ["error", "status"],
    "properties": {"error": _TEXT, "status": {"type": "integer"}},
}
_RA1_FAILURE: Node = {
    "type": "object",
    "required": ["success", "error"],
    "properties": {"success": {"const": False}, "error": _TEXT},
}
_A1: Node = {"image_url": _URL, **_USED, **_CHARGED, "request_id": _TEXT}
_A2: Node = {
    "success": {"type": "boolean"},
    "images": {"type": "array", "items": _URL},
    "image_url": _URL,
    **_USED,
    **_CHARGED,
}
_A4: Node = {"job_id": _TEXT, "status": {"const": "in_progress"}, "status_url": _TEXT}
_JOB: Node = {
    "job_id": _TEXT,
    "status": {"enum": ["in_progress", "completed", "failed", "canceled"]},
    "progress": {"type": "number", "minimum": 0, "maximum": 1},
    "status_url": _TEXT,
}


def _all_of(properties: Node) -> Node:
    return {"type": "object", "required": list(properties), "properties": properties}


def document(catalog: Catalog) -> Document:
    """Area A as far as it is built."""
    paths = {
        path: {"post": _making(endpoint, catalog, path)} for endpoint in ENDPOINTS for path in endpoint.paths
    }
    job = _all_of(_JOB)
    job["properties"] = {**_JOB, "result": {"type": "object"}, "error": _TEXT}
    status = openapi.answer("How the job stands", job)
    errors = openapi.failures(openapi.ref("Error"), 404, 503)
    following = {
        method: {
            "summary": summary,
            "operationId": f"{method}_status",
            "parameters": [openapi.in_path("job_id")],
            "responses": {"200": status, **errors},
        }
        for method, summary in (
            ("get", "How a job stands"),
            ("post", "How a job stands"),
            ("delete", "Cancel a job"),
        )
    }
    schemas = {
        "Error": _ERROR,
        "Ra1Failure": _RA1_FAILURE,
        "ra1": _all_of(_A1),
        "anime": _all_of(_A2),
        "QueuedJob": _all_of(_A4),
    }
    return Document(
        "Sixfold Media API",
        "1.0.0",
        "Pictures by a key in the body. A failed request is never charged.",
        {**paths, "/api/media/status/{job_id}": following},
        schemas,
    )


def _making(endpoint: Endpoint, catalog: Catalog, path: str) -> Node:
    mode: Node = {
        "type": "string",
        "enum": ["inline", "polling"],
        "description": "polling answers at once with a job",
    }
    key: Node = {"type": "string", "description": "The key; a bearer header is as good"}
    body = openapi.object_of(catalog[endpoint.model].inputs, {"api_key": key, "response_mode": mode})
    error = openapi.ref("Error")
    failed = openapi.failures(error, 400, 401, 402, 403, 404, 409, 429, 502, 503)
    if endpoint.model == "ra1":
        failed["502"] = openapi.answer(openapi.TEXTS[502], openapi.ref("Ra1Failure"))
    return {
        "summary": endpoint.summary,
        "operationId": path.removeprefix("/api/").replace("-", "_"),
        "security": [{openapi.BEARER: []}, {}],
        "parameters": [openapi.IDEMPOTENCY],
        "requestBody": openapi.json_body(body),
        "responses": {
            "200": openapi.answer("Made", openapi.ref(endpoint.model), headers=openapi.ENGINE_HEADERS),
            "202": openapi.answer("Queued", openapi.ref("QueuedJob")),
            **failed,
        },
    }
