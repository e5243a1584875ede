"""Watches the last station of an image, latents into pixels: what is no image is decoded again in float32.

A half-precision autoencoder can overflow into NaN, which ends as a black image. The watcher sits around
`vae.decode`, where every pipeline passes, so a second try costs a decoding and not a denoising.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sixfold.engines.image.diffusers import image_checks


class DecodeGuard:
    """What was seen while decoding: each image's fault or None, and how many were decoded again."""

    def __init__(self) -> None:
        self.faults: list[str | None] = []
        self.again = 0


@contextmanager
def watched(vae: Any) -> Iterator[DecodeGuard]:
    """Decode with a second try in float32 for as long as this lasts."""
    watch = DecodeGuard()
    plain = vae.decode

    def decode(latents: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        decoded = plain(latents, *arguments, **options)
        watch.faults = _faults(decoded)
        broken = sum(fault is not None for fault in watch.faults)
        if broken and _can_widen(vae) and bool(torch.isfinite(latents).all()):
            watch.again += broken
            decoded = _in_float32(vae, plain, latents, *arguments, **options)
            watch.faults = _faults(decoded)
        return decoded

    vae.decode = decode
    try:
        yield watch
    finally:
        del vae.decode  # the class's own again


def _in_float32(vae: Any, plain: Any, latents: torch.Tensor, *arguments: Any, **options: Any) -> Any:
    before = vae.dtype
    vae.to(torch.float32)
    try:
        return plain(latents.float(), *arguments, **options)
    finally:
        vae.to(before)


def _faults(decoded: Any) -> list[str | None]:
    """Each image's fault, from two numbers a channel: the pixels stay on their device."""
    pixels = decoded[0] if isinstance(decoded, tuple) else decoded.sample
    flat = pixels.flatten(2).float()  # images, channels, everything else (a film's one frame too)
    edges = torch.stack((flat.amin(2), flat.amax(2))) / 2 + 0.5
    low, high = edges.clamp(0, 1).tolist()
    return [image_checks.fault_of(*pair) for pair in zip(low, high, strict=True)]


def _can_widen(vae: Any) -> bool:
    """Whether float32 is wider than what it has, and its weights are here rather than offloaded piecemeal."""
    return vae.dtype != torch.float32 and not any(p.is_meta for p in vae.parameters())
