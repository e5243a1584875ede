"""The protocols that a kind of model server supports."""

from __future__ import annotations

from collections.abc import Mapping

from sixfold.clients.chat.completions import Completions
from sixfold.clients.chat.converse import Converse
from sixfold.clients.chat.forwarded.media import MEDIA_PROTOCOLS
from sixfold.clients.chat.forwarded.reranking import RERANK, Reranking
from sixfold.clients.chat.forwarded.texts import IGNORED_FIELDS, TextCompletions
from sixfold.clients.chat.gemini import Gemini
from sixfold.clients.chat.messages import Messages
from sixfold.clients.chat.responses import ResponseCompaction, ResponsesProtocol
from sixfold.core.gateway.policy import UpstreamRow
from sixfold.core.gateway.ports import COMPACTION, TEXT_COMPLETIONS, WireProtocol
from sixfold.providers import ProviderSpec

_WIRES: Mapping[str, WireProtocol] = {
    "chat": Completions(),
    "messages": Messages(),
    "responses": ResponsesProtocol(),
    COMPACTION: ResponseCompaction(),
    **{wire.name: wire for wire in MEDIA_PROTOCOLS},
    RERANK: Reranking(),
}
# Protocols of providers whose API differs from OpenAI's.
_DIALECTS: Mapping[str, WireProtocol] = {
    "anthropic": _WIRES["messages"],
    "converse": Converse(),
    "gemini": Gemini(),
}
# OpenAI's reasoning models reject `max_tokens`.
_LIMIT = "max_completion_tokens"


def of(
    row: UpstreamRow, spec: ProviderSpec, *, is_provider: bool
) -> tuple[WireProtocol, Mapping[str, WireProtocol]]:
    """Return the main protocol of a server, and the protocols that it supports by name.

    `is_provider` means that the server belongs to the provider of its kind.
    """
    if spec.dialect in _DIALECTS:
        main = _DIALECTS[spec.dialect]
        return main, {main.name: main}
    if row.kind == "tei":
        rerank = Reranking("texts", truncate=True)
        return Completions(), {"embeddings": _WIRES["embeddings"], RERANK: rerank}
    is_complete = is_provider and spec.responses and row.responses is not False
    has_responses = is_complete if row.responses is None else row.responses
    main = Completions(_LIMIT if has_responses else "max_tokens", spec.fields)
    without = {"messages"} if has_responses else {"messages", "responses"}
    without |= set() if is_complete else {COMPACTION}
    return main, {
        **{name: wire for name, wire in _WIRES.items() if name not in without},
        "chat": main,
        TEXT_COMPLETIONS: TextCompletions(spec.fields, IGNORED_FIELDS.get(row.kind, ())),
    }
