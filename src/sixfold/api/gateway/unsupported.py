"""Resources of the official libraries of OpenAI and Anthropic that this server does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.types import Scope

from sixfold import errors

# Anthropic's library states its version in every request.
ANTHROPIC_HEADER = b"anthropic-version"


class UnsupportedResource(NamedTuple):
    """An unsupported path: its resource, and the alternative on this server."""

    title: str
    instead: str = ""

    def message(self) -> str:
        return f"{self.title} is not supported by this server" + (f": {self.instead}" if self.instead else "")


_Row = UnsupportedResource
# Keys are the beginning of the path after `/v1/`, in whole segments.
OPENAI: Mapping[str, UnsupportedResource] = {
    "agents": _Row("The agents API"),
    "assistants": _Row("The assistants API", "use POST /v1/responses"),
    "audio/voice_consents": _Row("The voice consents API"),
    "audio/voices": _Row("The custom voices API", "POST /v1/audio/speech accepts the built-in voices"),
    "chat/completions": _Row("Storing chat completions", "responses are stored: GET /v1/responses/{id}"),
    "chatkit": _Row("ChatKit"),
    "containers": _Row("The containers API"),
    "check-api-key": _Row("Cohere's API key check", "use GET /v1/models"),
    "classify": _Row("Cohere's classification", "use POST /v1/chat/completions"),
    "connectors": _Row("The connectors API"),
    "content_provenance_checks": _Row(
        "The provenance checks API", "`sixfold inspect FILE` shows how a file was made"
    ),
    "datasets": _Row("The datasets API", "use POST /v1/files"),
    "decisions": _Row("The decisions API"),
    "detokenize": _Row("Cohere's tokenizer"),
    "embed-jobs": _Row("The embed jobs API", "use POST /v1/batches"),
    "finetuning": _Row("Fine-tuning", "POST /api/training trains image models"),
    "generate": _Row("Cohere's text completion", "use POST /v1/completions"),
    "summarize": _Row("Cohere's summarization", "use POST /v1/chat/completions"),
    "tokenize": _Row("Cohere's tokenizer"),
    "edits": _Row("The edits API", "use POST /v1/chat/completions"),
    "evals": _Row("The evals API"),
    "fine_tuning": _Row("Fine-tuning", "POST /api/training trains image models"),
    "images/variations": _Row(
        "Creating image variations", "POST /v1/images/edits restyles an image by a prompt"
    ),
    "live": _Row("The live API"),
    "organization": _Row("The administration API", "use `sixfold account` and `sixfold key`"),
    "projects": _Row("The administration API", "use `sixfold account` and `sixfold key`"),
    # The path of the websocket, for requests that do not open one.
    "realtime/": _Row("A plain HTTP request to this path", "connect a websocket to /v1/realtime?model=…"),
    "realtime/calls": _Row(
        "The realtime API over WebRTC or SIP", "connect a websocket to /v1/realtime?model=…"
    ),
    "realtime/sessions": _Row(
        "The beta version of the realtime API", "connect a websocket to /v1/realtime?model=…"
    ),
    "realtime/transcription_sessions": _Row(
        "The beta version of realtime transcription",
        "connect a websocket to /v1/realtime?intent=transcription",
    ),
    "realtime/translations": _Row(
        "Realtime translation", "POST /v1/audio/translations translates recordings"
    ),
    "safety": _Row("The safety API"),
    "skills": _Row("The skills API"),
    "threads": _Row("The threads API", "use POST /v1/responses with previous_response_id"),
    "vaults": _Row("The vaults API"),
    "webhook_endpoints": _Row("The webhook endpoints API"),
    "webhook_event_types": _Row("The webhook events API"),
}
ANTHROPIC: Mapping[str, UnsupportedResource] = {
    "agents": _Row("The agents API"),
    "compliance": _Row("The compliance API"),
    "complete": _Row("The text completions API", "use POST /v1/messages"),
    "deployment_runs": _Row("The deployments API"),
    "deployments": _Row("The deployments API"),
    "dreams": _Row("The dreams API"),
    "environments": _Row("The environments API"),
    "experimental": _Row("The experimental API"),
    "memory_stores": _Row("The memory stores API", "use the memory of this server at /api/pages"),
    "organizations": _Row("The administration API", "use `sixfold account` and `sixfold key`"),
    "sessions": _Row("The sessions API"),
    "skills": _Row("The skills API"),
    "tunnels": _Row("The tunnels API"),
    "user_profiles": _Row("The user profiles API"),
    "vaults": _Row("The vaults API"),
}
# Keys are the beginning of the path after `/v2/`.
COHERE: Mapping[str, UnsupportedResource] = {
    "audio": _Row("Cohere's transcription", "use POST /v1/audio/transcriptions"),
    "batches": _Row("Cohere's batches", "use POST /v1/batches"),
    "parse": _Row("Cohere's document parser", "send the document to POST /v1/chat/completions"),
}
# Paths that a client requests if its base URL lacks `/v1`.
_WITHOUT_BASE = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/messages",
    "/images/generations",
    "/audio/speech",
    "/audio/transcriptions",
)
# Paths outside the prefix `/v1/` that get errors in OpenAI's form.
RESERVED = ("/v1", *_WITHOUT_BASE)
# Methods of the libraries for paths that support only other methods on this server.
METHODS: Mapping[tuple[str, str], UnsupportedResource] = {
    ("GET", "chat/completions"): OPENAI["chat/completions"],
    ("DELETE", "models"): _Row("Deleting models", "the operator configures the models"),
}


def error(scope: Scope) -> errors.SixfoldError:
    """Return the error for an unknown path: `NotSupported` for a resource of the caller's library."""
    if scope["path"] in _WITHOUT_BASE:
        return errors.NotFound(
            f"No route {scope['method']} {scope['path']}: the OpenAI-compatible API is at /v1, "
            "so set the base URL to one that ends with /v1"
        )
    by_anthropic = any(name == ANTHROPIC_HEADER for name, _ in scope["headers"])
    resource = _find(scope["path"], ANTHROPIC if by_anthropic else OPENAI)
    if resource is not None:
        return errors.NotSupported(resource.message())
    return errors.NotFound(
        f"The path {scope['path'][:200]} was not found; GET /openapi/gateway.json lists the paths"
    )


def cohere_error(scope: Scope) -> errors.SixfoldError:
    """Return the error for an unknown path of Cohere's API."""
    resource = COHERE.get(scope["path"].removeprefix("/v2/").partition("/")[0].partition(":")[0])
    if resource is not None:
        return errors.NotSupported(resource.message())
    return errors.NotFound(f"The path {scope['path'][:200]} was not found")


def method_error(scope: Scope) -> errors.SixfoldError:
    """Return the error for an unsupported method; for one of a library, it names the alternative."""
    methods = {path: row for (method, path), row in METHODS.items() if method == scope["method"]}
    resource = _find(scope["path"], methods)
    return errors.MethodNotAllowed("" if resource is None else resource.message())


def _find(path: str, resources: Mapping[str, UnsupportedResource]) -> UnsupportedResource | None:
    first, second, *_ = [*path.removeprefix("/v1/").split("/"), ""]
    return resources.get(f"{first}/{second}") or resources.get(first)
