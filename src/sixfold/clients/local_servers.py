"""Model servers that may run on this machine: their default ports, and how to recognize them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import msgspec

from sixfold.clients.hosts import LOOPBACK

# The last two are services of Kubernetes, and a domain that is used in many offices.
_LOCAL_SUFFIXES = (".local", ".localhost", ".internal", ".lan", ".home.arpa", ".svc", ".corp")


class LocalServer(msgspec.Struct, frozen=True):
    """A kind of server: its default port, and a path whose response contains `word`.

    `title` is its display name, `program` the command to suggest, if any; `word` is in lower case.
    Two kinds may share a port; they differ in the path or the word.
    """

    kind: str
    title: str
    program: str
    port: int
    path: str
    word: bytes

    @property
    def url(self) -> str:
        return self.url_on(LOOPBACK)

    def url_on(self, host: str) -> str:
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def matches(self, body: bytes) -> bool:
        """Return whether a response is of this kind: a JSON object that contains the word."""
        return body.lstrip()[:1] == b"{" and self.word in body.lower()


CHAT: Sequence[LocalServer] = (
    LocalServer("ollama", "Ollama", "Ollama", 11434, "/api/version", b"version"),
    LocalServer("llamacpp", "llama.cpp", "llama-server", 8080, "/props", b"n_ctx"),
    LocalServer("vllm", "vLLM", "vLLM", 8000, "/version", b"version"),
    LocalServer("lmstudio", "LM Studio", "", 1234, "/v1/models", b'"data"'),
    LocalServer("sglang", "SGLang", "", 30000, "/get_model_info", b'"model_path"'),
    LocalServer("llamaswap", "llama-swap", "", 8080, "/running", b'"running"'),
)
COMFYUI = LocalServer("comfyui", "ComfyUI", "ComfyUI", 8188, "/system_stats", b"comfyui")


def is_in_local_network(host: str) -> bool:
    """Return whether a host is in the local network, by its name or address."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        name = host.lower().rstrip(".")
        return "." not in name or name.endswith(_LOCAL_SUFFIXES)
