"""Lists of models of providers and servers that do not support OpenAI's `/v1/models`.

Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_ListFoundationModels.html and
…/API_ListInferenceProfiles.html, https://ai.google.dev/api/models,
https://huggingface.github.io/text-embeddings-inference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.clients.chat.listing import Listing, ModelQueries, Models, model_name, optional, strings
from sixfold.core.gateway.capabilities import (
    CHAT,
    EMBEDDINGS,
    RERANK,
    THINKING,
    VISION,
    ServedModel,
    guess_model,
)
from sixfold.core.gateway.pricing.usage import parse_token_count


class _BedrockModel(msgspec.Struct, rename="camel"):
    model_id: Any = None
    input_modalities: Any = None
    output_modalities: Any = None
    inference_types_supported: Any = None


class _BedrockModels(msgspec.Struct, rename="camel"):
    model_summaries: list[_BedrockModel]


class _BedrockProfile(msgspec.Struct, rename="camel"):
    inference_profile_id: Any = None


class _BedrockProfiles(msgspec.Struct, rename="camel"):
    inference_profile_summaries: list[_BedrockProfile]


async def bedrock(queries: ModelQueries) -> Models | None:
    """Return the models that can be called by their id, then those that need an inference profile.

    The id of a profile is the id of its model with the prefix of a geography, such as `eu.` or `global.`.
    """
    control = queries.at("//bedrock-runtime.", "//bedrock.")
    models, profiles = await asyncio.gather(
        control.get("/foundation-models", _BedrockModels),
        optional(control.get("/inference-profiles?maxResults=1000", _BedrockProfiles)),
    )
    if models is None:
        return None
    served: dict[str, ServedModel] = {}
    on_demand: list[ServedModel] = []
    for row in models.model_summaries:
        name = model_name(row.model_id)
        if name:
            served[name] = ServedModel(name, _bedrock_capabilities(row), stated=True)
            if "ON_DEMAND" in strings(row.inference_types_supported):
                on_demand.append(served[name])
    for row in [] if profiles is None else profiles.inference_profile_summaries:
        name = model_name(row.inference_profile_id)
        model = served.get(name.partition(".")[2])
        if model is not None:
            on_demand.append(msgspec.structs.replace(model, name=name))
    return tuple(on_demand)


def _bedrock_capabilities(row: _BedrockModel) -> frozenset[str]:
    outputs, inputs = strings(row.output_modalities), strings(row.input_modalities)
    if "EMBEDDING" in outputs:
        return frozenset({EMBEDDINGS})
    if "TEXT" not in outputs:
        return frozenset()
    return frozenset({CHAT, VISION}) if "IMAGE" in inputs else frozenset({CHAT})


class _GeminiModel(msgspec.Struct, rename="camel"):
    name: Any = None
    supported_generation_methods: Any = None
    thinking: Any = None
    input_token_limit: Any = None
    output_token_limit: Any = None


class _GeminiModels(msgspec.Struct):
    models: list[_GeminiModel]


async def gemini(queries: ModelQueries) -> Models | None:
    """Return the models that generate content or embeddings; their names show whether they accept images."""
    answer = await queries.get("/models?pageSize=1000", _GeminiModels)
    if answer is None:
        return None
    models: list[ServedModel] = []
    for row in answer.models:
        name, methods = (
            model_name(row.name).removeprefix("models/"),
            strings(row.supported_generation_methods),
        )
        if name and "generateContent" in methods:
            model = guess_model(name)
            thinks = frozenset({THINKING}) if row.thinking is True and model.chat else frozenset[str]()
            models.append(
                msgspec.structs.replace(
                    model,
                    capabilities=model.capabilities | thinks,
                    context=parse_token_count(row.input_token_limit) or 0,
                    max_output=parse_token_count(row.output_token_limit) or 0,
                )
            )
        elif name and "embedContent" in methods:
            models.append(ServedModel(name, frozenset({EMBEDDINGS}), stated=True))
    return tuple(models)


class _TeiInfo(msgspec.Struct):
    model_id: Any = None
    model_type: dict[str, Any] | None = None
    max_input_length: Any = None


async def tei(queries: ModelQueries) -> Models | None:
    """Return the one model of text-embeddings-inference."""
    info = await queries.get("/info", _TeiInfo)
    if info is None or info.model_type is None:
        return None
    kinds = {"embedding": EMBEDDINGS, "reranker": RERANK}
    capabilities = frozenset(kinds[kind] for kind in info.model_type if kind in kinds)
    context = parse_token_count(info.max_input_length) or 0
    return (ServedModel(model_name(info.model_id), capabilities, loaded=True, stated=True, context=context),)


async def unlisted(_queries: ModelQueries) -> Models | None:
    """Return an empty list: Azure and Vertex AI also list models that this account may not call."""
    return ()


# Functions by provider or kind of server.
LISTINGS: Mapping[str, Listing] = {
    "azure": unlisted,
    "bedrock": bedrock,
    "gemini": gemini,
    "tei": tei,
    "vertex": unlisted,
}
