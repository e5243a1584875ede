"""Queries of NVIDIA's management library (NVML) for the GPUs and their free memory.

The library is part of the driver and called in-process, without CUDA. Source:
https://docs.nvidia.com/deploy/nvml-api/ (version 2 of these calls, in every driver since 2012).
"""

from __future__ import annotations

import ctypes

import msgspec

LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96


class GpuDevice(msgspec.Struct, frozen=True):
    """A GPU; CUDA_VISIBLE_DEVICES accepts its `uuid`."""

    uuid: str
    name: str
    total_bytes: int
    free_bytes: int


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def list_gpus(library: str = LIBRARY) -> tuple[GpuDevice, ...]:
    """Return every GPU that responds, in the library's order; empty without a driver."""
    try:
        nvml = ctypes.CDLL(library)
        if nvml.nvmlInit_v2() != 0:
            return ()
    except (OSError, AttributeError):
        return ()
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        devices = [_device(nvml, index) for index in range(count.value)]
    finally:
        nvml.nvmlShutdown()
    return tuple(device for device in devices if device is not None)


def _device(library: ctypes.CDLL, index: int) -> GpuDevice | None:
    """Return a GPU, or None if it has failed or is not accessible."""
    device, memory = ctypes.c_void_p(), _Memory()
    uuid, name = (ctypes.create_string_buffer(_TEXT_BYTES) for _ in range(2))
    statuses = (
        library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)),
        library.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(_TEXT_BYTES)),
        library.nvmlDeviceGetName(device, name, ctypes.c_uint(_TEXT_BYTES)),
        library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)),
    )
    if any(statuses):
        return None
    return GpuDevice(uuid.value.decode(), name.value.decode(errors="replace"), memory.total, memory.free)
