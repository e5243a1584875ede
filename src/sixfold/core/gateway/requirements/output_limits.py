"""Output tokens of requests without a limit: as many as the model can produce or the credit covers.

A call is never charged more than its hold, so a server must not generate more than was held.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sixfold.core.gateway.chat import ChatRequest
from sixfold.core.gateway.ports import SUMMARY, TEXT_COMPLETIONS, GatewayRequest
from sixfold.core.gateway.routing import RouteTarget

# The field of the limit, by protocol; Anthropic's requests always contain it.
_FIELDS = {
    "chat": "max_completion_tokens",
    "responses": "max_output_tokens",
    SUMMARY: "max_output_tokens",
    TEXT_COMPLETIONS: "max_tokens",
}
# The tokens of the longest responses of current models.
LONGEST = 128 * 1024
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def output_tokens(request: GatewayRequest, target: RouteTarget, default: int) -> int:
    """Return the maximum output tokens of a target; `default` if request and model set no limit."""
    if request.max_tokens:
        return request.max_tokens * request.answers
    most = target.model_info().max_output if request.body else 0
    return max(default, most) * request.answers


def most_counted(request: GatewayRequest, targets: Iterable[RouteTarget], default: int) -> int:
    """Return how many of the reported output tokens count against a rate: a server may report any number.

    The default is no such limit, because a response to a request without a limit may be longer.
    """
    return max(output_tokens(request, target, max(default, LONGEST)) for target in targets)


def limit_output(request: GatewayRequest, tokens: int) -> GatewayRequest | None:
    """Return a request with a limit on output tokens.

    Return None if the request already has a limit or its protocol does not support limits.
    """
    field = _FIELDS.get(request.wire)
    if field is None or request.max_tokens or request.expected_usage is not None or not request.body:
        return None
    try:
        fields = _raws(request.body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    fields[field] = msgspec.Raw(str(tokens).encode())
    parse = request.parse

    def parse_limited() -> ChatRequest:
        return msgspec.structs.replace(parse(), max_tokens=tokens)

    return msgspec.structs.replace(request, body=_encode(fields), max_tokens=tokens, parse=parse_limited)
