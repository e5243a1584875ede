"""Capabilities inferred from a model's name if its server states none."""

from __future__ import annotations

import pytest

from sixfold.core.gateway.capabilities import (
    CHAT,
    EMBEDDINGS,
    MODERATION,
    RERANK,
    VISION,
    ServedModel,
    guess_capabilities,
    guess_model,
)

SUGGESTED = {
    (): "whisper-1 tts-1-hd dall-e-3 gpt-image-1 llama-guard3 gpt-4o-realtime-preview gpt-4o-mini-tts "
    "flux.1-dev",
    (RERANK,): "bge-reranker-v2-m3 jina-reranker-v2 rerank-v3.5 BAAI/bge-reranker-base",
    (MODERATION,): "omni-moderation-latest mistral-moderation-2411",
    (EMBEDDINGS,): "nomic-embed-text nomic-embed-text:latest BAAI/bge-m3 intfloat/e5-large-v2 all-minilm:33m "
    "mxbai-embed-large snowflake-arctic-embed text-embedding-3-small gte-qwen2-7b-instruct e5 "
    "sentence-transformers/LaBSE paraphrase-multilingual qwen3-embedding:8b",
    (
        CHAT,
    ): "llama3.2 qwen3 mistral-small deepseek-r1 phi3 gemma3:1b gemma3:270m gemma3n:e4b o1-mini o3-mini "
    "small large vicuna hermes3 code5-chat",
    (
        CHAT,
        VISION,
    ): "llava:7b llama3.2-vision:11b qwen2.5vl:7b Qwen/Qwen3-VL-8B gemma3:4b google/gemma-3-12b-it "
    "gpt-4o gpt-5.4-nano claude-opus-5 minicpm-v:8b internvl3 pixtral-12b moondream mistral-small3.2:24b",
}


@pytest.mark.parametrize(
    ("able", "name"), [(able, name) for able, names in SUGGESTED.items() for name in names.split()]
)
def test_capabilities_are_inferred_from_the_model_name(able: tuple[str, ...], name: str) -> None:
    assert guess_capabilities(name) == frozenset(able)


def test_vision_is_unknown_only_if_server_and_name_are_silent() -> None:
    assert guess_model("small").vision is None
    assert guess_model("llava").vision is True
    assert guess_model("nomic-embed-text").vision is False
    assert ServedModel("llava", frozenset({CHAT}), stated=True).vision is False
    assert ServedModel("image-maker", frozenset({VISION}), stated=True).vision is False
