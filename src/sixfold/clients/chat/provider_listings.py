"""Lists the models of providers whose lists are not like OpenAI's.

Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_ListFoundationModels.html and
…/API_ListInferenceProfiles.html.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.clients.chat.listing import Listing, ModelQueries, Models, model_name, optional, strings
from sixfold.core.gateway.capabilities import CHAT, EMBEDDINGS, VISION, ServedModel


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
    """Return the models that can be called by their own id, then those that need an inference profile.

    The id of a profile is that of its model after a geography, such as `eu.` or `global.`.
    """
    control = queries.at("//bedrock-runtime.", "//bedrock.")
    models, profiles = await asyncio.gather(
        control.get("/foundation-models", _BedrockModels),
        optional(control.get("/inference-profiles?maxResults=1000", _BedrockProfiles)),
    )
    if models is None:
        return None
    found: dict[str, ServedModel] = {}
    on_demand: list[ServedModel] = []
    for row in models.model_summaries:
        name = model_name(row.model_id)
        if name:
            found[name] = ServedModel(name, _bedrock_capabilities(row), stated=True)
            if "ON_DEMAND" in strings(row.inference_types_supported):
                on_demand.append(found[name])
    for row in [] if profiles is None else profiles.inference_profile_summaries:
        name = model_name(row.inference_profile_id)
        model = found.get(name.partition(".")[2])
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


# By the dialect of the provider.
LISTINGS: Mapping[str, Listing] = {"converse": bedrock}
