"""Prompts longer than a text encoder's window: encoded in chunks where supported, else truncated."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from sixfold.engines.image.diffusers.profiles import ModelProfile

# Return values of `encode_prompt` in order; Stable Diffusion returns only the first two.
_NAMES = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")


class PromptEncoding(msgspec.Struct, frozen=True):
    """A prompt split into chunks (one if it fits), and the number of tokens that are ignored."""

    pieces: tuple[str, ...]
    negative: tuple[str, ...]
    unread: int = 0

    @property
    def length(self) -> int:
        """Number of chunks of the longer prompt; the rows of one batch must have the same length."""
        return max(len(self.pieces), len(self.negative))


def read(pipeline: Any, profile: ModelProfile, prompt: str, negative: str) -> PromptEncoding:
    """Return the prompt in chunks if the pipeline supports them, else with the number of ignored tokens."""
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
    """Return the number of tokens, or 0 if the bytes, which are at least as many, are within the limit."""
    if len(text.encode()) + 2 <= _window(tokenizer):
        return 0
    return len(tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids)


def _fits(tokenizers: Sequence[Any], text: str) -> bool:
    return all(_count(tokenizer, text) <= _window(tokenizer) - 2 for tokenizer in tokenizers)


def _split(tokenizers: Sequence[Any], text: str) -> tuple[str, ...]:
    """Split `text` into the fewest chunks of whole words that fit the windows of all tokenizers."""
    if _fits(tokenizers, text):
        return (text,)
    pieces: list[str] = []
    words = text.split()
    while words:
        # Binary search for the largest number of words that fit.
        low, high = 0, len(words)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _fits(tokenizers, " ".join(words[:middle])) else (low, middle - 1)
        if low == 0:
            # A single word is too long and is split in half.
            half = max(1, len(words[0]) // 2)
            words[:1] = [words[0][:half], words[0][half:]]
            continue
        pieces.append(" ".join(words[:low]))
        words = words[low:]
    return tuple(pieces)


def embeddings(
    pipeline: Any, encodings: Sequence[PromptEncoding], *, guided: bool, negative: bool
) -> dict[str, torch.Tensor]:
    """Return the embeddings of prompts by argument name; chunks are concatenated along the sequence.

    Pooled embeddings are those of the first chunk. Without a negative prompt the pipeline computes
    unconditional embeddings itself, which may differ from those of an empty prompt.
    """
    columns = [
        pipeline.encode_prompt(
            prompt=[_at(encoding.pieces, index) for encoding in encodings],
            negative_prompt=[_at(encoding.negative, index) for encoding in encodings] if negative else None,
            device=pipeline._execution_device,
            num_images_per_prompt=1,
            do_classifier_free_guidance=guided,
        )
        for index in range(max(encoding.length for encoding in encodings))
    ]
    tensors: dict[str, torch.Tensor] = {}
    for position, name in enumerate(_NAMES[: len(columns[0])]):
        parts = [column[position] for column in columns]
        if parts[0] is not None:
            tensors[name] = parts[0] if "pooled" in name else torch.cat(parts, dim=1)
    return tensors


def _at(pieces: Sequence[str], index: int) -> str:
    return pieces[index] if index < len(pieces) else ""
