"""NVIDIA's management library: which graphics cards there are, and how much of their memory is free.

It is the driver's own and asked at once; no process is started, and nothing of CUDA is loaded. Source:
https://docs.nvidia.com/deploy/nvml-api/ (version 2 of these calls, in every driver since 2012).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One card; its `uuid` is a name that CUDA_VISIBLE_DEVICES takes."""

    uuid: str
    name: str
    total_bytes: int
    free_bytes: int


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def cards(library: str = LIBRARY) -> tuple[GpuDevice, ...]:
    """Every card that answers, in the library's order; none where there is no driver."""
    try:
        opened = ctypes.CDLL(library)
        if opened.nvmlInit_v2() != 0:
            return ()
    except (OSError, AttributeError):
        return ()
    try:
        count = ctypes.c_uint()
        opened.nvmlDeviceGetCount_v2(ctypes.byref(count))
        found = [_card(opened, index) for index in range(count.value)]
    finally:
        opened.nvmlShutdown()
    return tuple(card for card in found if card is not None)


def _card(library: ctypes.CDLL, index: int) -> GpuDevice | None:
    """One card; None for one that fell off its bus, or that another user holds."""
    device, memory = ctypes.c_void_p(), _Memory()
    uuid, name = (ctypes.create_string_buffer(_TEXT_BYTES) for _ in range(2))
    asked = (
        library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)),
        library.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(_TEXT_BYTES)),
        library.nvmlDeviceGetName(device, name, ctypes.c_uint(_TEXT_BYTES)),
        library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)),
    )
    if any(asked):
        return None
    return GpuDevice(uuid.value.decode(), name.value.decode(errors="replace"), memory.total, memory.free)
