"""Partial images, decoded from latents during denoising at a reduced size."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch

from sixfold.engines.image import encode

# Latents have an eighth of an image's side, so a partial image has up to 512 pixels.
_MAX_SIDE = 64
_QUALITY = 80


def decode(pipeline: Any, latents: torch.Tensor, size: tuple[int, int]) -> bytes | None:
    """Return one row of latents as a JPEG, or None if the latents cannot be decoded.

    `size` is the (width, height) of the complete image.
    """
    if latents.ndim == 3 and hasattr(pipeline, "_unpack_latents"):
        latents = pipeline._unpack_latents(latents, size[1], size[0], pipeline.vae_scale_factor)
    if latents.ndim != 4:
        return None
    scale = _MAX_SIDE / max(latents.shape[-2:])
    if scale < 1:
        latents = torch.nn.functional.interpolate(latents, scale_factor=scale, mode="bilinear")
    vae = pipeline.vae
    shift = getattr(vae.config, "shift_factor", None) or 0.0
    latents = (latents / vae.config.scaling_factor + shift).to(vae.dtype)
    with torch.no_grad():
        # The method of the class is called because the guard checks the results of `vae.decode`.
        decoded = type(vae).decode(vae, latents, return_dict=False)[0]
    pixels = (decoded[0].float() / 2 + 0.5).clamp(0, 1)
    if not bool(torch.isfinite(pixels).all()):
        return None
    rgb = (pixels * 255).round().to(torch.uint8).movedim(0, -1).cpu().numpy()
    return encode.encode(rgb, None, format="jpeg", quality=_QUALITY)
