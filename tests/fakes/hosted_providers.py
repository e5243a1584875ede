"""Fakes of providers with OpenAI's API on loopback: their documented keys, lists, usage and errors.

Sources: learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle (the v1 API) and
…/concepts/content-filter, docs.mistral.ai/api, openrouter.ai/docs/api-reference (errors, usage accounting,
models), console.groq.com/docs/api-reference and …/docs/errors, docs.together.ai/reference/models-1, and
api-docs.deepseek.com/quick_start/error_codes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.fakes import fault_server
from tests.fakes.chat_servers import ModelServer

KEY = "sk-hosted-canary-0123456789"
# OpenAI's fields that Mistral rejects with status 422.
_FORBIDDEN = frozenset({"max_completion_tokens", "seed", "stream_options", "user", "store", "logprobs"})
_FORBIDDEN_IN_MESSAGES = frozenset({"reasoning_content", "reasoning", "refusal", "annotations"})


def _openai_error(message: str, kind: str, code: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


_FILTERED = {
    "message": "The prompt triggered Azure OpenAI's content management policy.",
    "type": None,
    "param": "prompt",
    "code": "content_filter",
    "status": 400,
    "innererror": {
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"violence": {"filtered": True, "severity": "high"}},
    },
}
_MODERATED = {
    "code": 403,
    "message": "Your chosen model requires moderation and your input was flagged",
    "metadata": {"reasons": ["violence"], "flagged_input": "say 3…", "provider_name": "OpenAI"},
}


@dataclass(frozen=True)
class Profile:
    """Formats of one provider: its header of keys, its list, and its errors by mode."""

    header: str = "authorization"
    scheme: str = "Bearer "
    models: Any = None
    errors: Mapping[str, tuple[int, Any]] = field(default_factory=dict)
    retry_header: str = "retry-after"


PROFILES: Mapping[str, Profile] = {
    "azure": Profile(
        header="api-key",
        scheme="",
        models={"object": "list", "data": [{"id": "gpt-5.4", "object": "model", "status": "succeeded"}]},
        errors={
            "key": (401, _openai_error("Access denied due to invalid subscription key.", "", "401")),
            "limit": (429, _openai_error("Requests have exceeded call rate limit.", "", "429")),
            "filter": (400, {"error": _FILTERED}),
        },
    ),
    "mistral": Profile(
        models={
            "object": "list",
            "data": [
                {
                    "id": "mistral-large-2512",
                    "object": "model",
                    "capabilities": {"completion_chat": True, "function_calling": True, "vision": True},
                    "max_context_length": 262144,
                },
                {
                    "id": "codestral-2508",
                    "object": "model",
                    "capabilities": {"completion_chat": True, "function_calling": True, "vision": False},
                    "max_context_length": 256000,
                },
                {
                    "id": "mistral-embed",
                    "object": "model",
                    "capabilities": {"completion_chat": False, "function_calling": False, "vision": False},
                },
            ],
        },
        errors={
            "key": (401, {"detail": "Unauthorized"}),
            "limit": (429, {"object": "error", "message": "Rate limit exceeded", "type": "rate_limited"}),
        },
    ),
    "openrouter": Profile(
        models={
            "data": [
                {
                    "id": "qwen/qwen3-vl",
                    "context_length": 131072,
                    "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
                    "pricing": {
                        "prompt": "0.000002",
                        "completion": "0.00001",
                        "input_cache_read": "0.0000005",
                    },
                    "supported_parameters": ["tools", "reasoning", "max_tokens"],
                    "top_provider": {"max_completion_tokens": 32768},
                },
                {
                    "id": "openrouter/auto",
                    "context_length": 2000000,
                    "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
                    "pricing": {"prompt": "-1", "completion": "-1"},
                    "supported_parameters": [],
                },
                {
                    "id": "google/gemini-3-pro-image",
                    "architecture": {"input_modalities": ["text"], "output_modalities": ["image"]},
                    "pricing": {"prompt": "0.000002", "completion": "0.00001"},
                },
            ]
        },
        errors={
            "key": (401, {"error": {"code": 401, "message": "User not found."}}),
            "credit": (402, {"error": {"code": 402, "message": "Insufficient credits."}}),
            "limit": (429, {"error": {"code": 429, "message": "Rate limit exceeded"}}),
            "filter": (403, {"error": _MODERATED}),
        },
    ),
    "groq": Profile(
        models={
            "object": "list",
            "data": [
                {"id": "openai/gpt-oss-120b", "object": "model", "active": True, "context_window": 131072},
                {"id": "whisper-large-v3", "object": "model", "active": True, "context_window": 448},
            ],
        },
        errors={
            "key": (401, _openai_error("Invalid API Key", "invalid_request_error", "invalid_api_key")),
            "limit": (429, _openai_error("Rate limit reached", "tokens", "rate_limit_exceeded")),
        },
    ),
    "together": Profile(
        models=[
            {
                "id": "Qwen/Qwen3.5-397B-A17B",
                "object": "model",
                "type": "chat",
                "context_length": 262144,
                "pricing": {"hourly": 0, "input": 2, "output": 10, "base": 0, "finetune": 0},
            },
            {
                "id": "black-forest-labs/FLUX.2-dev",
                "object": "model",
                "type": "image",
                "pricing": {"hourly": 0, "input": 0, "output": 0, "base": 0, "finetune": 0},
            },
            {"id": "odd/fields", "object": "model", "type": ["chat"], "pricing": "free"},
            {
                "id": "dedicated/unpriced",
                "object": "model",
                "type": "chat",
                "pricing": {"hourly": 0, "input": 0, "output": 0, "base": 0, "finetune": 0},
            },
        ],
        errors={
            "key": (
                401,
                _openai_error("Invalid API key provided", "invalid_request_error", "invalid_api_key"),
            ),
            "limit": (429, _openai_error("Rate limit exceeded", "rate_limit", None)),
        },
    ),
    "deepseek": Profile(
        models={
            "object": "list",
            "data": [{"id": "deepseek-chat", "object": "model", "owned_by": "deepseek"}],
        },
        errors={
            "key": (401, _openai_error("Authentication Fails (governor)", "authentication_error", None)),
            "credit": (402, _openai_error("Insufficient Balance", "unknown_error", "invalid_request_error")),
            "limit": (429, _openai_error("Rate limit reached", "rate_limit", None)),
        },
    ),
}


@dataclass
class HostedProvider(ModelServer):
    """Fake provider; its modes are those of `ModelServer` and of its `errors`."""

    name: str = "groq"

    @property
    def profile(self) -> Profile:
        return PROFILES[self.name]

    def routes(self) -> list[Route]:
        azure = Route("/openai/v1/chat/completions", self.chat, methods=["POST"])
        lists = [Route(path, self.models) for path in ("/v1/key", "/openai/v1/models")]
        return [*super().routes(), *lists, azure]

    async def models(self, request: Request) -> Response:
        response = self._refusal(request, "well")
        return response or JSONResponse(self.profile.models)

    async def take(
        self, request: Request, document: dict[str, Any]
    ) -> tuple[dict[str, Any], str, Response | None]:
        document, mode, fault = await super().take(request, document)
        return document, mode, self._refusal(request, mode) or self._unknown_field(document) or fault

    def usage(self, document: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
        usage = super().usage(document, reply)
        match self.name:
            case "openrouter":
                usage |= {"cost": 0.00123, "cost_details": {"upstream_inference_cost": None}}
            case "deepseek":
                del usage["prompt_tokens_details"]
                usage |= {
                    "prompt_cache_hit_tokens": 4,
                    "prompt_cache_miss_tokens": usage["prompt_tokens"] - 4,
                }
            case "mistral":
                del usage["prompt_tokens_details"]
            case _:
                pass
        return usage

    def _refusal(self, request: Request, mode: str) -> Response | None:
        profile = self.profile
        if request.headers.get(profile.header) != f"{profile.scheme}{KEY}":
            mode = "key"
        if mode not in profile.errors:
            return None
        status, error = profile.errors[mode]
        headers = {profile.retry_header: "7"} if mode == "limit" else {}
        return JSONResponse(error, status, headers)

    def _unknown_field(self, document: dict[str, Any]) -> Response | None:
        if self.name != "mistral":
            return None
        names = [["body", name] for name in document if name in _FORBIDDEN]
        for index, message in enumerate(document.get("messages", ())):
            inner = [name for name in message if name in _FORBIDDEN_IN_MESSAGES]
            names += [["body", "messages", index, message["role"], name] for name in inner]
        detail = [
            {"type": "extra_forbidden", "loc": name, "msg": "Extra inputs are not permitted"}
            for name in names
        ]
        error = {"object": "error", "message": {"detail": detail}, "type": "invalid_request_error"}
        return JSONResponse(error, 422) if names else None


@asynccontextmanager
async def hosted_provider(name: str) -> AsyncGenerator[HostedProvider]:
    fake = HostedProvider(name=name, always_usage=name in ("mistral", "openrouter"))
    async with fault_server.serve(fake.routes()) as fake.port:
        yield fake
