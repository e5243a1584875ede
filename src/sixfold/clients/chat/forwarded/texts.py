"""OpenAI's text completions: a prompt that the model continues, without the turns of a chat.

Source: https://platform.openai.com/docs/api-reference/completions. Chats are never translated into it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from sixfold import errors
from sixfold.clients.chat.completions import Completions
from sixfold.core.gateway.chat import ChatRequest, ChatResponse
from sixfold.core.gateway.ports import TEXT_COMPLETIONS

# Fields that would change the response, but that a kind of server ignores.
IGNORED_FIELDS: Mapping[str, Collection[str]] = {"ollama": ("best_of", "echo", "n")}
_WITHOUT_EFFECT = frozenset({b"null", b"false", b"1"})
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class TextCompletions(Completions):
    """The protocol of `POST /completions`; usage is reported in the same form as in chats."""

    name = TEXT_COMPLETIONS
    path = "/completions"

    def __init__(self, names: Mapping[str, str] | None = None, ignored: Collection[str] = ()) -> None:
        """`ignored` contains the fields that the server accepts but ignores."""
        super().__init__(names=names)
        self._ignored = frozenset(ignored)

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request for the server; raises `InvalidInput` for a field that it would ignore."""
        fields = _fields(body) if self._ignored else {}
        for name in sorted(self._ignored & fields.keys()):
            if bytes(fields[name]) not in _WITHOUT_EFFECT:
                raise errors.InvalidInput.of(
                    name, f"The server of this model does not support {name}: omit it"
                )
        return super().rewrite_request(body, model)

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        """Raise `NotImplementedError`: requests are only forwarded."""
        raise NotImplementedError

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        raise NotImplementedError
