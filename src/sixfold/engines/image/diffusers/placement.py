"""Placement of a pipeline: device, number format, offload and tiling."""

# pyright: reportMissingImports=false

from __future__ import annotations

import gc
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil
import torch

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers.options import DiffusersOptions

Offload = Literal["none", "model", "sequential"]
NEXT_OFFLOAD: dict[Offload, Offload] = {"none": "model", "model": "sequential"}

_GIB = 2**30
# Bytes reserved for activations and the device's libraries.
_RESERVED_BYTES = {"cuda": 2 * _GIB, "mps": 2 * _GIB, "cpu": _GIB // 2}
# Number of arrays of width x height x channels that exist at once in a decoder's widest layers.
_DECODE_COPIES = 5
# Side in pixels of the tiles that autoencoders decode; tiling has no effect on smaller images.
_TILE_SIDE = 512


class Device(msgspec.Struct, frozen=True):
    """A device and the number format of weights on it."""

    kind: str
    dtype: torch.dtype

    @property
    def item_bytes(self) -> int:
        """Size of one number in bytes."""
        return self.dtype.itemsize

    @property
    def torch(self) -> torch.device:
        return torch.device(self.kind)

    def __str__(self) -> str:
        return f"{self.kind} in {str(self.dtype).removeprefix('torch.')}"


def device(options: DiffusersOptions) -> Device:
    """Return the configured device, or else cuda, mps or cpu in this order; bfloat16 where it is native."""
    kind = options.device
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":
        kind = next(name for name, is_available in available.items() if is_available)
    if not available[kind]:
        raise EngineError(f"torch did not find a {kind} device on this machine.")
    if kind == "cuda":
        # The same seed gives the same image; this costs a few percent of speed.
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    if options.dtype != "auto":
        return Device(kind, getattr(torch, options.dtype))
    return Device(kind, _native_dtype(kind))


def _native_dtype(kind: str) -> torch.dtype:
    if kind == "cpu":
        # On processors without matrix instructions for it, bfloat16 halves the memory but is slower than
        # float32.
        return torch.bfloat16 if torch.cpu.get_capabilities().get("amx_bf16") else torch.float32
    if kind == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    # Older systems do not support bfloat16 on Apple GPUs.
    try:
        square = torch.ones(2, 2, dtype=torch.bfloat16, device="mps")
        torch.matmul(square, square)
    except (RuntimeError, TypeError):
        return torch.float16
    return torch.bfloat16


def free_bytes(kind: str) -> int:
    """Return the memory in bytes that can be allocated now; torch's cached memory counts as free."""
    if kind == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if kind == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return min(psutil.virtual_memory().available, _group_bytes(), _address_bytes())


def _group_bytes() -> int:
    """Return the bytes left within the memory limit of this process's cgroup; cached files count as free."""
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        facts = dict(line.split(maxsplit=1) for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + int(facts.get("inactive_file", 0))
    return 2**63


def _address_bytes() -> int:
    """Return the bytes left within the limit on this process's address space."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 2**63 if limit == resource.RLIM_INFINITY else limit - psutil.Process().memory_info().vms


def release(kind: str) -> None:
    """Release the memory of dropped pipelines."""
    gc.collect()
    if kind == "cuda":
        torch.cuda.empty_cache()
    elif kind == "mps":
        torch.mps.empty_cache()


def offload(sizes: Mapping[str, int], where: Device, free: int, setting: str) -> Offload:
    """Return a pipeline's offload mode; raises `EngineError` if its weights do not fit in a CPU's memory.

    On a CPU, the mode is `none`. On other devices it is `setting`, unless that is `auto`: then `none` if all
    weights and the reserve fit, `model` if the largest component does, else `sequential`.
    """
    reserved = _RESERVED_BYTES[where.kind]
    total, largest = sum(sizes.values()), max(sizes.values(), default=0)
    if where.kind == "cpu":
        if total > free:
            raise EngineError(
                f"The weights need {_gib(total)} of memory, but only {_gib(max(0, free))} are free: "
                'choose a smaller model, or dtype = "bfloat16".'
            )
        return "none"
    if setting != "auto":
        return setting  # pyright: ignore[reportReturnType]  # validated by `options.parse`
    if total + reserved <= free:
        return "none"
    return "model" if largest + reserved <= free else "sequential"


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB // 10 else f"{count / 2**20:.1f} MiB"


def place(pipeline: Any, where: Device, how: Offload) -> None:
    """Move a pipeline to its device with this offload mode; later calls may change the mode."""
    if where.kind != "cpu":
        pipeline.remove_all_hooks()
    if how == "none":
        pipeline.to(where.torch)
    elif how == "model":
        pipeline.enable_model_cpu_offload(device=where.kind)
    else:
        pipeline.enable_sequential_cpu_offload(device=where.kind)


def must_tile(pipeline: Any, where: Device, size: tuple[int, int], free: int) -> bool:
    """Return whether an image of this size must be decoded in tiles."""
    width, height = size
    return max(size) > _TILE_SIDE and decode_bytes(pipeline, width * height, where.item_bytes) > free


def decode_bytes(pipeline: Any, pixels: int, item_bytes: int) -> int:
    """Return the memory in bytes that decoding one image requires in addition to the weights."""
    channels = pipeline.vae.config.get("block_out_channels") or (128, 256)
    return _DECODE_COPIES * pixels * channels[min(1, len(channels) - 1)] * item_bytes


def tile(pipeline: Any, tiled: bool) -> None:
    """Enable or disable tiled decoding, and decode images one at a time, which is not measurably slower."""
    vae = pipeline.vae
    if hasattr(vae, "enable_slicing"):
        vae.enable_slicing()
    if hasattr(vae, "enable_tiling"):
        (vae.enable_tiling if tiled else vae.disable_tiling)()
