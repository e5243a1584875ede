"""Servers of models that may run on this machine: where each listens, and how it is recognised."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A kind of server, by the port that it takes by itself and a path whose answer has `word` in it.

    `title` is what people call it, `program` what they start; `word` is in lower case.
    """

    kind: str
    title: str
    program: str
    port: int
    path: str
    word: bytes

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


CHAT = (
    LocalServer("ollama", "Ollama", "Ollama", 11434, "/api/version", b"version"),
    LocalServer("llamacpp", "llama.cpp", "llama-server", 8080, "/props", b"n_ctx"),
    LocalServer("vllm", "vLLM", "vLLM", 8000, "/version", b"version"),
)
COMFYUI = LocalServer("comfyui", "ComfyUI", "ComfyUI", 8188, "/system_stats", b"comfyui")
