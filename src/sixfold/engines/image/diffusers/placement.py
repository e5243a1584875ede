"""Where a pipeline runs and how much of it stays there: device, number format, offload, tiling."""

# pyright: reportMissingImports=false

from __future__ import annotations

import gc
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers.options import DiffusersOptions

Offload = Literal["none", "model", "sequential"]
HARDER: dict[Offload, Offload] = {"none": "model", "model": "sequential"}

_GIB = 2**30
# Beside the weights a device holds activations and its own libraries: what is kept free for them.
_ROOM_BYTES = {"cuda": 2 * _GIB, "mps": 2 * _GIB, "cpu": _GIB // 2}
# A decoder's widest layers are at full size: so many copies of width x height x channels are alive there.
_DECODE_COPIES = 5
_TILE_SIDE = 512  # autoencoders decode tiles of about this side; below it tiling changes nothing


@dataclass(frozen=True, slots=True)
class Device:
    """A device and the number format that weights have there."""

    kind: str
    dtype: torch.dtype

    @property
    def item_bytes(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    @property
    def torch(self) -> torch.device:
        """The device as torch knows it."""
        return torch.device(self.kind)

    def __str__(self) -> str:
        return f"{self.kind} in {str(self.dtype).removeprefix('torch.')}"


def device(options: DiffusersOptions) -> Device:
    """The device of these options: cuda, else mps, else cpu; bfloat16 where it is native there."""
    kind = options.device
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":
        kind = next(name for name, is_there in there.items() if is_there)
    if not there[kind]:
        raise EngineError(f"This machine has no {kind} device that torch can use.")
    if kind == "cuda":  # the same seed gives the same image, at a few percent of speed
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    if options.dtype != "auto":
        return Device(kind, getattr(torch, options.dtype))
    return Device(kind, _native_dtype(kind))


def _native_dtype(kind: str) -> torch.dtype:
    if kind == "cpu":
        return torch.float32
    if kind == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    try:  # older systems have no bfloat16 on Apple's GPU
        square = torch.ones(2, 2, dtype=torch.bfloat16, device="mps")
        torch.matmul(square, square)
    except (RuntimeError, TypeError):
        return torch.float16
    return torch.bfloat16


def free_bytes(kind: str) -> int:
    """What could be taken on a device now, what torch keeps for later counted as free."""
    if kind == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if kind == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return min(psutil.virtual_memory().available, _group_bytes(), _address_bytes())


def _group_bytes() -> int:
    """What the control group of this process leaves, where it has a limit; files it cached can go."""
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        facts = dict(line.split(maxsplit=1) for line in (group / "memory.stat").read_text().splitlines())
        return limit - used + int(facts.get("inactive_file", 0))
    return 2**63


def _address_bytes() -> int:
    """What the limit on this process's address space leaves."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return 2**63 if limit == resource.RLIM_INFINITY else limit - psutil.Process().memory_info().vms


def release(kind: str) -> None:
    """Give back what dropped pipelines held."""
    gc.collect()
    if kind == "cuda":
        torch.cuda.empty_cache()
    elif kind == "mps":
        torch.mps.empty_cache()


def offload(sizes: Mapping[str, int], where: Device, free: int, wanted: str) -> Offload:
    """How much must leave the device between uses; raises `EngineError` when nothing would help.

    `none` when all weights and the working room fit, `model` when the largest component does, else
    `sequential`. A processor has nowhere to offload to.
    """
    room = _ROOM_BYTES[where.kind]
    total, largest = sum(sizes.values()), max(sizes.values(), default=0)
    if where.kind == "cpu":
        if total > free:
            raise EngineError(
                f"The weights take {_gib(total)} and {_gib(max(0, free))} of memory are free: "
                'choose a smaller model, or dtype = "bfloat16".'
            )
        return "none"
    if wanted != "auto":
        return wanted  # pyright: ignore[reportReturnType]  # `options.parse` let only these through
    if total + room <= free:
        return "none"
    return "model" if largest + room <= free else "sequential"


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB // 10 else f"{count / 2**20:.1f} MiB"


def place(pipeline: Any, where: Device, how: Offload) -> None:
    """Put a pipeline on its device in this manner; idempotent, and from any manner to any other."""
    if where.kind != "cpu":
        pipeline.remove_all_hooks()
    if how == "none":
        pipeline.to(where.torch)
    elif how == "model":
        pipeline.enable_model_cpu_offload(device=where.kind)
    else:
        pipeline.enable_sequential_cpu_offload(device=where.kind)


def must_tile(pipeline: Any, where: Device, size: tuple[int, int], free: int) -> bool:
    """Whether an image of this size is better decoded in tiles."""
    width, height = size
    return max(size) > _TILE_SIDE and decode_bytes(pipeline, width * height, where.item_bytes) > free


def decode_bytes(pipeline: Any, pixels: int, item_bytes: int) -> int:
    """What decoding one image takes beside the weights."""
    channels = pipeline.vae.config.get("block_out_channels") or (128, 256)
    return _DECODE_COPIES * pixels * channels[min(1, len(channels) - 1)] * item_bytes


def tile(pipeline: Any, tiled: bool) -> None:
    """Decode in tiles, or whole; one image at a time either way, which costs no time worth naming."""
    vae = pipeline.vae
    if hasattr(vae, "enable_slicing"):
        vae.enable_slicing()
    if hasattr(vae, "enable_tiling"):
        (vae.enable_tiling if tiled else vae.disable_tiling)()
