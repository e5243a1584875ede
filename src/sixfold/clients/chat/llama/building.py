"""Construction of the model servers for GGUF files from the settings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from sixfold.clients.chat.llama import files
from sixfold.clients.chat.llama.options import KIND, parse
from sixfold.clients.chat.llama.server import GgufServer
from sixfold.clients.chat.transport import Transport
from sixfold.core.gateway.policy import UpstreamRow

# The family of weights that `sixfold engines add` downloads.
FAMILY = "chat"


def build(rows: Iterable[UpstreamRow], weights: Path, transport: Transport) -> tuple[GgufServer, ...]:
    """Return the configured servers, and one for the installed models unless a configured one includes them.

    Raises `ValueError`.
    """
    options_by_name = {row.name: parse(row.name, row.options) for row in rows if row.kind == KIND}
    if all(options.source for options in options_by_name.values()):
        options_by_name.setdefault(KIND, parse(KIND, {}))
    return tuple(
        GgufServer(
            name,
            partial(files.models_at, Path(options.source).expanduser())
            if options.source
            else partial(files.added_models, weights / FAMILY),
            options,
            transport,
        )
        for name, options in options_by_name.items()
    )
