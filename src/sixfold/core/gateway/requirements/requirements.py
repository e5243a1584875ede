"""Requirements of a request for its model, and the targets that meet them.

Only requests that are known to be impossible are refused; a model with unknown capabilities receives all
requests.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

import msgspec

from sixfold import errors
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway.capabilities import EMBEDDINGS, TOOLS, ServedModel
from sixfold.core.gateway.chat import ChatRequest, ImagePart
from sixfold.core.gateway.ports import GatewayRequest
from sixfold.core.gateway.pricing import service_prices
from sixfold.core.gateway.pricing.token_rates import TokenRates
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.core.gateway.requirements import output_limits
from sixfold.core.gateway.requirements.maximum_usage import Contents, add_media_and_tools
from sixfold.core.gateway.requirements.provider_tools import RequestTools
from sixfold.core.gateway.routing import RatedTargets, RouteTarget

# An image in the body of a request of any protocol; in text, the quotation marks would be escaped.
_IMAGE = re.compile(rb'"type"\s*:\s*"(?:image_url|image|input_image)"')
# Ollama's messages contain their images in a separate field.
_IMAGES: Mapping[str, re.Pattern[bytes]] = {"ollama": re.compile(rb'"images"\s*:\s*\[\s*"')}
# OpenAI's server itself shortens such a conversation.
_TRUNCATED = re.compile(rb'"truncation"\s*:\s*"auto"')
# An input is refused if its estimate exceeds the context by this factor, because tokenizers differ that much.
_CONTEXT_FACTOR = 2
# An escaped character (`\u4e2d`) is one character in six bytes.
_ESCAPE, _ESCAPE_EXCESS = b"\\u", 5
_CHOOSE = "choose a model from GET /v1/models that has"


class _ToolFields(msgspec.Struct):
    tools: list[msgspec.Raw] | None = None
    functions: list[msgspec.Raw] | None = None


_decode_tools = msgspec.json.Decoder(_ToolFields).decode


class RequestNeeds:
    """The content of a request; `input_tokens` is an upper estimate.

    `provider_tools` are the tools that the provider charges for, and `contents` the media and documents of
    the body. Values that only some models need are determined at first use.
    """

    def __init__(self, request: GatewayRequest) -> None:
        self.request = request
        self.provider_tools = RequestTools(request.wire, request.body, request.answers)
        if request.expected_usage is None:
            tokens = chats.estimate_body(request.body) if request.body else chats.estimate(self._chat)
            self.input_tokens = tokens + request.stored_tokens
            self.contents = Contents(request.body)
        else:
            self.input_tokens = request.expected_usage.input

    @property
    def is_covered(self) -> bool:
        """Whether the price of a call covers the request, if its service has one."""
        return service_prices.covers(self.request.model, self.input_tokens, self.request.max_tokens)

    @functools.cached_property
    def images(self) -> bool:
        """Whether the request contains an image."""
        if self.request.body:
            return _IMAGES.get(self.request.wire, _IMAGE).search(self.request.body) is not None
        parts = (part for message in self._chat.messages for part in message.parts)
        return any(isinstance(part, ImagePart) for part in parts)

    @functools.cached_property
    def tools(self) -> bool:
        """Whether the request contains tools, or functions of OpenAI's older API."""
        if not self.request.body:
            return bool(self._chat.tools)
        try:
            fields = _decode_tools(self.request.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return bool(fields.tools or fields.functions)

    def max_usage(self, target: RouteTarget, max_tokens: int) -> TokenUsage:
        """Return the maximum usage by a target, with `max_tokens` of output unless another limit applies.

        Servers with other protocols receive only text, images and functions.
        """
        if self.request.expected_usage is not None:
            return self.request.max_usage or self.request.expected_usage
        output = output_limits.output_tokens(self.request, target, max_tokens)
        text, context = TokenUsage(self.input_tokens, output), target.model_info().context
        if not self.request.body:
            return text
        if not target.accepts(self.request.wire):
            tokens = self.contents.image_tokens(target.model)
            return msgspec.structs.replace(text, input=text.input + tokens) if tokens else text
        return add_media_and_tools(self.contents, text, self.provider_tools, target.model, context)

    @functools.cached_property
    def least_tokens(self) -> int:
        """The input tokens without the excess of escaped characters; 0 if the server shortens the input."""
        body = self.request.body
        if self.request.wire == "responses" and _TRUNCATED.search(body):
            return 0
        return self.input_tokens - chats.tokens_of(_ESCAPE_EXCESS * body.count(_ESCAPE))

    @functools.cached_property
    def _chat(self) -> ChatRequest:
        return self.request.parse()

    @classmethod
    def determined(cls, request: GatewayRequest) -> RequestNeeds:
        """Return the needs with all values determined, for processing a large body in another thread."""
        needs = cls(request)
        if request.expected_usage is None:
            _ = needs.images, needs.tools, needs.least_tokens
        return needs


def meeting(targets: RatedTargets, needs: RequestNeeds) -> RatedTargets:
    """Return the targets that may serve a request; if there are none, raise the first target's error.

    Raises `InvalidInput` for unsupported content, and `TooLong` for an input that is clearly longer than the
    context.
    """
    unpriced = needs.provider_tools.unpriced
    if unpriced is None and not any(target.model_info().limited for target, _ in targets):
        return targets
    refusals = [
        _refusal(target.model_info(), needs) or (unpriced if _is_charged(target, rates, needs) else None)
        for target, rates in targets
    ]
    able = tuple([rated for rated, refusal in zip(targets, refusals, strict=True) if refusal is None])
    if not able and refusals[0] is not None:
        raise refusals[0]
    return able


def _refusal(model: ServedModel, needs: RequestNeeds) -> errors.SixfoldError | None:
    if not model.limited:
        return None
    request = needs.request
    checks = _CHAT_CHECKS if request.expected_usage is None else _CHECKS.get(request.wire, ())
    return next((refusal for check in checks if (refusal := check(model, needs)) is not None), None)


def _is_charged(target: RouteTarget, rates: TokenRates, needs: RequestNeeds) -> bool:
    """Return whether the server would run tools and charge for them."""
    # Servers with other protocols receive only functions.
    return bool(rates.input or rates.output) and target.accepts(needs.request.wire)


def _name(needs: RequestNeeds) -> str:
    return needs.request.model[:100]


def _images(model: ServedModel, needs: RequestNeeds) -> errors.SixfoldError | None:
    if model.vision is not False or not needs.images:
        return None
    return errors.InvalidInput.of("model", f"{_name(needs)} does not accept images: {_CHOOSE} vision")


def _tools(model: ServedModel, needs: RequestNeeds) -> errors.SixfoldError | None:
    if TOOLS not in model.lacks or not needs.tools:
        return None
    return errors.InvalidInput.of(
        "tools", f"{_name(needs)} does not support tools: omit them, or {_CHOOSE} tools"
    )


def _length(model: ServedModel, needs: RequestNeeds) -> errors.SixfoldError | None:
    limit = _CONTEXT_FACTOR * model.context
    if not limit or needs.input_tokens <= limit or needs.least_tokens <= limit:
        return None
    return errors.TooLong(
        f"The input has about {needs.least_tokens:,} tokens, but the context of {_name(needs)} is "
        f"{model.context:,} tokens: shorten the input, or choose a model with a larger context"
    )


def _embeddings(model: ServedModel, needs: RequestNeeds) -> errors.SixfoldError | None:
    if EMBEDDINGS not in model.lacks:
        return None
    return errors.InvalidInput.of("model", f"{_name(needs)} does not return embeddings: {_CHOOSE} embeddings")


def _dimensions(model: ServedModel, needs: RequestNeeds) -> errors.SixfoldError | None:
    count, most = needs.request.dimensions, model.dimensions
    if count is None or not most or count == most or (count < most and not model.fixed_dimensions):
        return None
    allowed = f"must be {most}" if model.fixed_dimensions else f"must be at most {most}"
    return errors.InvalidInput.of("dimensions", f"dimensions {allowed} for {_name(needs)} (got {count})")


_Check = Callable[[ServedModel, RequestNeeds], errors.SixfoldError | None]
_CHAT_CHECKS: tuple[_Check, ...] = (_images, _tools, _length)
# The checks by protocol.
_CHECKS: dict[str, tuple[_Check, ...]] = {"embeddings": (_embeddings, _dimensions)}
