"""Capabilities of models, as stated by their servers or guessed from their names."""

from __future__ import annotations

import functools
import re

import msgspec

from sixfold.core.gateway.pricing.token_rates import TokenRates

CHAT, EMBEDDINGS, VISION, TOOLS, THINKING = "chat", "embeddings", "vision", "tools", "thinking"
RERANK, MODERATION = "rerank", "moderation"
ALL = frozenset({CHAT, EMBEDDINGS, VISION, TOOLS, THINKING})
# Ollama adds this tag to names without a tag.
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

    `stated` means that `capabilities` come from the server; otherwise they are guessed from the name and may
    be incomplete. `lacks` contains capabilities that the model is known not to have. `loaded` means that the
    server reports the model as loaded, so it responds without delay.
    """

    name: str
    capabilities: frozenset[str] = frozenset({CHAT})
    loaded: bool = False
    stated: bool = False
    # The prices that the provider's list contains, if any.
    rates: TokenRates | None = None
    # Token limits; 0 if unknown.
    context: int = 0
    max_output: int = 0
    # Maximum dimensions of an embedding, or 0; if `fixed_dimensions` is set, the only possible number.
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
        """Whether the model is known to lack capabilities."""
        return bool(self.lacks or self.context or self.dimensions) or self.vision is False


@functools.lru_cache(4096)
def guess_capabilities(name: str) -> frozenset[str]:
    """Guess the capabilities of a model from its name; models with an unknown name can chat."""
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
