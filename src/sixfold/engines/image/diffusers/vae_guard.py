"""A guard that decodes invalid images again in float32.

A half-precision autoencoder can overflow into NaN, which results in a black image. The guard wraps
`vae.decode`, which every pipeline calls, so a second attempt repeats only the decoding and not the denoising.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sixfold.engines.image.diffusers import image_checks


class DecodeGuard:
    """The result of decoding: the fault of each image or None, and the number of images decoded again."""

    def __init__(self) -> None:
        self.faults: list[str | None] = []
        self.again = 0


@contextmanager
def guard_decoding(vae: Any) -> Iterator[DecodeGuard]:
    """Decode invalid images a second time in float32 while the context is active."""
    guard = DecodeGuard()
    original = vae.decode

    def decode(latents: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        decoded = original(latents, *arguments, **options)
        guard.faults = _faults(decoded)
        broken = sum(fault is not None for fault in guard.faults)
        if broken and _can_widen(vae) and bool(torch.isfinite(latents).all()):
            guard.again += broken
            decoded = _in_float32(vae, original, latents, *arguments, **options)
            guard.faults = _faults(decoded)
        return decoded

    vae.decode = decode
    try:
        yield guard
    finally:
        # Deleting the attribute restores the method of the class.
        del vae.decode


def _in_float32(vae: Any, plain: Any, latents: torch.Tensor, *arguments: Any, **options: Any) -> Any:
    before = vae.dtype
    vae.to(torch.float32)
    try:
        return plain(latents.float(), *arguments, **options)
    finally:
        vae.to(before)


def _faults(decoded: Any) -> list[str | None]:
    """Return each image's fault or None, found with few numbers per channel to avoid copying the pixels."""
    pixels = decoded[0] if isinstance(decoded, tuple) else decoded.sample
    # Shape: images, channels, all other axes (including a video's single frame).
    flat = pixels.flatten(2).float()
    edges = torch.stack((flat.amin(2), flat.amax(2))) / 2 + 0.5
    low, high = edges.clamp(0, 1).tolist()
    return [image_checks.find_fault(*pair) for pair in zip(low, high, strict=True)]


def _can_widen(vae: Any) -> bool:
    """Return whether float32 is wider than the current type and the weights are not offloaded in parts."""
    return vae.dtype != torch.float32 and not any(p.is_meta for p in vae.parameters())
