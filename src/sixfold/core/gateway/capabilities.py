"""Capabilities of models: as their server states them, or guessed by name."""

from __future__ import annotations

import functools
import re

import msgspec

from sixfold.core.gateway.usage import TokenRates

CHAT, EMBEDDINGS, VISION, TOOLS, THINKING = "chat", "embeddings", "vision", "tools", "thinking"
RERANK, MODERATION = "rerank", "moderation"
ALL = frozenset({CHAT, EMBEDDINGS, VISION, TOOLS, THINKING})
# Ollama adds this tag to names without one.
LATEST = ":latest"

# Words of a model's name are delimited by separators: `bge` matches `BAAI/bge-m3:567m`, but not `subgenius`.
_WORD = r"(?:^|[/_.:\s-])(?:{})(?=[/_.:\s-]|$)"
_EMBEDDING_WORDS = r"bge|e5|gte|(?:all-)?minilm|mxbai|paraphrase|labse|colbert|uae|sfr-embedding|sentence-t5"
_EMBEDDING = re.compile(rf"embed|sentence-transformers|{_WORD.format(_EMBEDDING_WORDS)}")
_OTHER_WORDS = (
    r"tts|stt|asr|clip|siglip|sdxl|flux\.?\d?|sora|guard|realtime|audio|transcribe|babbage|davinci|kokoro"
    r"|piper|bark"
)
_RERANK, _MODERATION = re.compile("rerank|ranker"), re.compile("moderation")
_OTHER = re.compile(
    r"whisper|dall-?e|gpt-image|stable-diffusion|llama-?guard|shieldgemma|parakeet"
    rf"|{_WORD.format(_OTHER_WORDS)}"
)
_VISION = re.compile(
    r"vision|llava|pixtral|moondream|minicpm-?[vo](?![a-z])|internvl|molmo|idefics|paligemma|cogvlm|multimodal"
    r"|(?:^|[/_.:-])(?:[a-z]+[\d.]*)?vlm?(?=[/_.:\d-]|$)|glm-?4(?:\.\d)?v"
    r"|gemma-?3(?![n\d])(?!.*(?:270m|[:-]1b))|gemma-?4|llama-?4|mistral-small-?3\.[12]|qwen-?3\.5"
    r"|gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-5|(?:^|/)o(?:1(?!-mini)|3(?!-mini)|4-mini)|claude-|gemini-|grok-4"
)


class ServedModel(msgspec.Struct, frozen=True):
    """A model that a server lists.

    `stated` means that `capabilities` come from the server; otherwise they are guessed by the name and may be
    incomplete. `lacks` are capabilities that the model is known not to have. `loaded` means that the server
    reports the model as loaded, so that it responds at once.
    """

    name: str
    capabilities: frozenset[str] = frozenset({CHAT})
    loaded: bool = False
    stated: bool = False
    # The provider's own prices, if its list has them.
    rates: TokenRates | None = None
    # Limits of tokens; 0 if they are not known.
    context: int = 0
    max_output: int = 0
    # The most numbers of an embedding, or 0; with `fixed_dimensions`, the only number of them.
    dimensions: int = 0
    fixed_dimensions: bool = False
    lacks: frozenset[str] = frozenset()

    @property
    def chat(self) -> bool:
        """Whether the model accepts chats."""
        return CHAT in self.capabilities

    @property
    def vision(self) -> bool | None:
        """Whether the model accepts images in chats, or None if unknown."""
        if not self.chat:
            return False
        if VISION in self.capabilities:
            return True
        return False if self.stated else None

    @property
    def limited(self) -> bool:
        """Whether anything is known that the model cannot do."""
        return bool(self.lacks or self.context or self.dimensions) or self.vision is False


@functools.lru_cache(4096)
def guess_capabilities(name: str) -> frozenset[str]:
    """Guess the capabilities of a model by its name; an unknown name can chat."""
    lower = name.lower()
    for pattern, capability in ((_RERANK, RERANK), (_MODERATION, MODERATION)):
        if pattern.search(lower):
            return frozenset({capability})
    if _OTHER.search(lower):
        return frozenset()
    if _EMBEDDING.search(lower):
        return frozenset({EMBEDDINGS})
    return frozenset({CHAT, VISION}) if _VISION.search(lower) else frozenset({CHAT})


def guess_model(name: str, *, loaded: bool = False) -> ServedModel:
    return ServedModel(name, guess_capabilities(name), loaded)
