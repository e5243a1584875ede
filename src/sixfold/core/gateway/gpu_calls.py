"""Responses of model servers that share a GPU with other programs, and errors of a full GPU."""

from __future__ import annotations

import re

from sixfold.core.gateway.ports import UpstreamStream
from sixfold.core.gpu.arbiter import GpuLease

# Messages of llama.cpp, Ollama, torch and GPU drivers.
_OUT_OF_MEMORY = re.compile(
    rb"out of memory|out of device memory|more system memory|failed to allocate|unable to allocate"
    rb"|cudaMalloc failed|insufficient memory|not enough memory",
    re.IGNORECASE,
)
_MAX_BYTES = 64 * 1024


def is_out_of_memory(message: bytes) -> bool:
    """Return whether a server's error says that its GPU is full."""
    return _OUT_OF_MEMORY.search(message[:_MAX_BYTES]) is not None


class LeasedStream:
    """A response whose server uses the GPU until the response is closed."""

    def __init__(self, response: UpstreamStream, lease: GpuLease) -> None:
        self._response = response
        self._lease = lease
        self.status = response.status
        self.retry_after = response.retry_after
        self.read = response.read

    async def aclose(self) -> None:
        """Close the response and release the GPU."""
        try:
            await self._response.aclose()
        finally:
            self._lease.release()
