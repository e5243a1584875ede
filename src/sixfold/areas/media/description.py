"""Area A's OpenAPI document, from the table of its endpoints and the models' inputs."""

from __future__ import annotations

from sixfold.areas.media import gallery_description
from sixfold.areas.media.endpoints import ENDPOINTS, Endpoint
from sixfold.core.work.catalog import Catalog
from sixfold.web import openapi
from sixfold.web.openapi import Document, Node

_TEXT: Node = {"type": "string"}
_CHARGED: Node = {
    "cost": {"type": "string", "description": "USD as decimal text"},
    "credits_charged": {"type": "integer"},
    "list_price": {"type": "string", "description": "USD as decimal text, where less is charged"},
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
_SIDE: Node = {"type": "integer", "minimum": 1}
_RESIZED: Node = {
    "images": {"type": "array", "items": _URL},
    "result": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["url", "width", "height", "method"],
            "properties": {
                "url": _URL,
                "width": _SIDE,
                "height": _SIDE,
                "method": {"enum": ["scale", "crop", "seam-carving", "extend"]},
            },
        },
    },
    **_CHARGED,
}
_CONFIDENCE: Node = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_CUT_OUT: Node = {
    "image": {
        "type": "object",
        "required": ["url", "width", "height", "content_type", "confidence"],
        "properties": {
            "url": _URL,
            "width": _SIDE,
            "height": _SIDE,
            "content_type": {"const": "image/png"},
            "confidence": _CONFIDENCE,
        },
    },
    **_CHARGED,
}
_VIDEO: Node = {
    "type": "object",
    "required": ["url", "width", "height", "duration", "fps", "content_type"],
    "properties": {
        "url": _URL,
        "width": _SIDE,
        "height": _SIDE,
        "duration": {"type": "number", "description": "Seconds"},
        "fps": {"type": "number"},
        "content_type": {"type": "string"},
    },
}
_A3: Node = {"video": _VIDEO, "prompt": _TEXT, "seed": {"type": "integer"}}
_FILM: Node = {"video": _VIDEO, **_CHARGED}
_FILM_URL: Node = {"video_url": _URL, **_CHARGED}
_A4: Node = {"job_id": _TEXT, "status": {"const": "in_progress"}, "status_url": _TEXT}
_JOB: Node = {
    "job_id": _TEXT,
    "status": {"enum": ["in_progress", "completed", "failed", "canceled"]},
    "progress": {"type": "number", "minimum": 0, "maximum": 1},
    "status_url": _TEXT,
}


def _all_of(properties: Node) -> Node:
    return {"type": "object", "required": openapi.always(properties), "properties": properties}


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
        "photoreal": _all_of(_A1),
        "smart-resize": _all_of(_RESIZED),
        "remove-background": _all_of(_CUT_OUT),
        "video-a": _all_of({"result": _all_of(_A3), **_CHARGED}),
        "video-b": _all_of(_FILM_URL),
        "video-c": _all_of(_FILM),
        "video-text": _all_of(_FILM),
        "video-image": _all_of(_FILM),
        "ra2v": _all_of({**_FILM_URL, "backend_used": _TEXT}),
        "remove-background-video": _all_of({**_FILM, "confidence": _CONFIDENCE}),
        "render": _all_of(_FILM),
        "QueuedJob": _all_of(_A4),
        **gallery_description.SCHEMAS,
    }
    return Document(
        "Sixfold Media API",
        "1.0.0",
        "Pictures by a key in the body. A failed request is never charged.",
        {**paths, "/api/media/status/{job_id}": following, **gallery_description.paths()},
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
    codes = (400, 401, 402, 403, 404, 409, 429, endpoint.failure.status, 503)
    failed = openapi.failures(error, *codes)
    if endpoint.model == "ra1":
        failed["502"] = openapi.answer(openapi.TEXTS[502], openapi.ref("Ra1Failure"))
    made = openapi.answer("Made", openapi.ref(endpoint.model), headers=openapi.ENGINE_HEADERS)
    return {
        "summary": endpoint.summary,
        "operationId": path.removeprefix("/api/").strip("/").replace("-", "_").replace("/", "_"),
        "security": [{openapi.BEARER: []}, {}],
        "parameters": [openapi.IDEMPOTENCY],
        "requestBody": openapi.json_body(body),
        "responses": {
            **({} if endpoint.queued else {"200": made}),
            "202": openapi.answer("Queued", openapi.ref("QueuedJob")),
            **failed,
        },
    }
