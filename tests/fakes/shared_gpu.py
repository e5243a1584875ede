"""Memory of one GPU that several fakes share; as on a real one, allocations that do not fit fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GIB = 2**30


class OutOfMemoryError(MemoryError):
    """An allocation did not fit; torch's error has this name."""


class FakeGpu:
    """`allocations` maps (server, model) to bytes; `refusals` is what did not fit, `unloaded` what went."""

    def __init__(self, total: int = 24 * GIB, others: int = 0) -> None:
        self.total = total
        self.others = others
        self.allocations: dict[tuple[str, str], int] = {}
        self.refusals: list[tuple[str, str]] = []
        self.unloaded: list[tuple[str, str]] = []

    @property
    def free(self) -> int:
        return self.total - self.others - sum(self.allocations.values())

    def of(self, server: str) -> dict[str, int]:
        return {model: size for (holder, model), size in self.allocations.items() if holder == server}

    def load(self, server: str, model: str, size: int) -> None:
        """Load a model, for which the server drops its own others; raises `OutOfMemoryError`."""
        if (server, model) in self.allocations:
            return
        if size > self.free:
            for other in self.of(server):
                del self.allocations[server, other]
        if size > self.free:
            self.refusals.append((server, model))
            raise OutOfMemoryError(f"{server} cannot allocate {size} bytes for {model}, {self.free} are free")
        self.allocations[server, model] = size

    def unload(self, server: str, model: str = "") -> None:
        for name in [model] if model else list(self.of(server)):
            if self.allocations.pop((server, name), None) is not None:
                self.unloaded.append((server, name))


class ComfyMemory:
    """ComfyUI's memory: on a `gpu` that it may share, each checkpoint takes `sizes[checkpoint]` bytes."""

    def __init__(self) -> None:
        self.gpu: FakeGpu | None = None
        self.sizes: dict[str, int] = {}
        self.device = "cuda"
        # As there, memory is freed between two runs.
        self.frees_after_run = False

    def stats(self) -> dict[str, Any]:
        """The device, as `/system_stats` describes it."""
        memory = {"vram_total": 24 * GIB, "vram_free": 20 * GIB}
        if self.gpu is not None:
            reserved = sum(self.gpu.of("comfyui").values())
            memory = {"vram_total": self.gpu.total, "vram_free": self.gpu.free, "torch_vram_total": reserved}
        return {"name": f"{self.device}:0 Fake GPU : native", "type": self.device, "index": 0, **memory}

    def load(self, prompt: Mapping[str, Any], class_type: str) -> None:
        """Take the memory of the checkpoint that a sampler computes with; raises `OutOfMemoryError`."""
        if self.gpu is not None and class_type == "KSampler":
            for node in prompt.values():
                file = node["inputs"].get("ckpt_name")
                if file in self.sizes:
                    self.gpu.load("comfyui", file, self.sizes[file])

    def free(self, *, runs: bool) -> bool:
        """Unload all models unless a run is in progress; return whether they are unloaded."""
        self.frees_after_run = runs
        if not runs and self.gpu is not None:
            self.gpu.unload("comfyui")
        return not runs

    def run_ended(self) -> bool:
        """Unload all models if that was requested during the run; return whether they are unloaded."""
        return self.frees_after_run and self.free(runs=False)
