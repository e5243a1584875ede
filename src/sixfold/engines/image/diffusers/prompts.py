"""Prompts that are longer than a text encoder's window: read in pieces, or cut with a word in the log."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from sixfold.engines.image.diffusers.profiles import ModelProfile

# What `encode_prompt` gives, in its order; Stable Diffusion stops after two.
_NAMES = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")


@dataclass(frozen=True, slots=True)
class PromptEncoding:
    """How a prompt is read: its pieces (one where it fits), and how many tokens are left unread."""

    pieces: tuple[str, ...]
    negative: tuple[str, ...]
    unread: int = 0

    @property
    def length(self) -> int:
        """Pieces of the longer of the two; the rows of one denoising loop agree in it."""
        return max(len(self.pieces), len(self.negative))


def read(pipeline: Any, profile: ModelProfile, prompt: str, negative: str) -> PromptEncoding:
    """Split what is too long where the class allows it, else count what will not be read."""
    if profile.pieces:
        tokenizers = [t for name in ("tokenizer", "tokenizer_2") if (t := getattr(pipeline, name, None))]
        return PromptEncoding(_split(tokenizers, prompt), _split(tokenizers, negative))
    last = next(
        (t for name in ("tokenizer_3", "tokenizer_2", "tokenizer") if (t := getattr(pipeline, name, None))),
        None,
    )
    window = profile.sequence or _window(last)
    unread = max(0, _count(last, prompt) - window) if last is not None else 0
    return PromptEncoding((prompt,), (negative,), unread)


def _window(tokenizer: Any) -> int:
    return int(min(getattr(tokenizer, "model_max_length", 1 << 20), 1 << 20))


def _count(tokenizer: Any, text: str) -> int:
    """Tokens of a text, or at least that it fits: bytes bound tokens, so a short text is not tokenised."""
    if len(text.encode()) + 2 <= _window(tokenizer):
        return 0
    return len(tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids)


def _fits(tokenizers: Sequence[Any], text: str) -> bool:
    return all(_count(tokenizer, text) <= _window(tokenizer) - 2 for tokenizer in tokenizers)


def _split(tokenizers: Sequence[Any], text: str) -> tuple[str, ...]:
    """The text in the fewest runs of words that each fit all windows."""
    if _fits(tokenizers, text):
        return (text,)
    pieces: list[str] = []
    words = text.split()
    while words:
        low, high = 0, len(words)  # the most words that fit, by halving
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _fits(tokenizers, " ".join(words[:middle])) else (low, middle - 1)
        if low == 0:  # one word that is too long by itself
            half = max(1, len(words[0]) // 2)
            words[:1] = [words[0][:half], words[0][half:]]
            continue
        pieces.append(" ".join(words[:low]))
        words = words[low:]
    return tuple(pieces)


def embeddings(
    pipeline: Any, readings: Sequence[PromptEncoding], *, guided: bool, negative: bool
) -> dict[str, torch.Tensor]:
    """Embeddings of prompts in pieces, one piece after the other along the sequence.

    What an encoder says of a text as a whole (`pooled`) is said of the first piece. Without a negative
    prompt a class may have its own idea of none, so it is asked for that rather than for an empty text.
    """
    columns = [
        pipeline.encode_prompt(
            prompt=[_at(reading.pieces, index) for reading in readings],
            negative_prompt=[_at(reading.negative, index) for reading in readings] if negative else None,
            device=pipeline._execution_device,
            num_images_per_prompt=1,
            do_classifier_free_guidance=guided,
        )
        for index in range(max(reading.length for reading in readings))
    ]
    found: dict[str, torch.Tensor] = {}
    for place, name in enumerate(_NAMES[: len(columns[0])]):
        parts = [column[place] for column in columns]
        if parts[0] is not None:
            found[name] = parts[0] if "pooled" in name else torch.cat(parts, dim=1)
    return found


def _at(pieces: Sequence[str], index: int) -> str:
    return pieces[index] if index < len(pieces) else ""
