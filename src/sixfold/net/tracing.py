"""OpenTelemetry spans of requests, of each attempt at a model server, and of each run.

The module is imported only if an endpoint is configured (`sixfold[otel]`). Names follow OpenTelemetry's
conventions for HTTP and generative AI; other names begin with `sixfold.`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sixfold import __version__
from sixfold.core.gateway.ports import UpstreamFailure, UpstreamStream
from sixfold.core.gateway.request_log import CallOutcome, CallRecord
from sixfold.core.money import format_usd
from sixfold.core.predictions.events import Event, StateChanged
from sixfold.core.predictions.models import Prediction

_OPERATIONS = {
    "/chat/completions": "chat",
    "/responses": "chat",
    "/messages": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
    "/images/generations": "generate_content",
    "/images/edits": "generate_content",
    "/audio/speech": "speech",
    "/audio/transcriptions": "transcription",
}
# Ended requests whose runs may still be in progress.
_RECENT = 4096
_ID = "sixfold.request_id"
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class TracedTransport(Protocol):
    """A transport to model servers."""

    def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> Coroutine[Any, Any, UpstreamStream]: ...

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamStream: ...

    async def delete(self, url: str, headers: Mapping[str, str]) -> UpstreamStream: ...

    async def aclose(self) -> None: ...


class _RequestHead(msgspec.Struct):
    """The parameters of a request that are added to its span; values of other types are left out."""

    model: Any = ""
    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    seed: Any = None
    n: Any = None


# The span attributes of request parameters; the last name of an attribute takes precedence.
_PARAMETERS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
}
# The names of providers in the conventions, where they differ from the names here.
_PROVIDER_NAMES = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
}


_decode_head = msgspec.json.Decoder(_RequestHead).decode


class _Attempt(msgspec.Struct):
    """An attempt at a model server, whose span waits for the usage; `ended` is in epoch ns."""

    span: Span
    ended: int | None = None


class Tracing:
    """The spans of one server process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("sixfold", __version__)
        self._carrier = TraceContextTextMapPropagator()
        self._open_requests: dict[int, tuple[Scope, SpanContext]] = {}
        self._recent: OrderedDict[str, SpanContext] = OrderedDict()
        self._attempts: dict[int, _Attempt] = {}
        # The kinds of the configured model servers, by name.
        self.kinds: Mapping[str, str] = {}

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()

    def serve(self, app: App) -> App:
        """Wrap the application so that each request has a span below the caller's `traceparent`."""

        async def traced_app(scope: Scope, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            attributes = {"http.request.method": scope["method"], "url.path": scope["path"][:200]}
            parent = self._carrier.extract(headers)
            span = self._tracer.start_span(scope["method"], parent, SpanKind.SERVER, attributes)
            token = contexts.attach(trace.set_span_in_context(span, parent))
            self._open_requests[id(scope)] = (scope, span.get_span_context())

            async def traced_send(message: Any) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            try:
                await app(scope, receive, traced_send)
            finally:
                contexts.detach(token)
                self._end_request(scope, span)

        return traced_app

    def _end_request(self, scope: Scope, span: Span) -> None:
        del self._open_requests[id(scope)]
        self._close(span)
        request_id = str(scope.get(_ID, ""))
        span.set_attribute(_ID, request_id)
        if route := scope.get("sixfold.route"):
            span.set_attribute("http.route", route)
            span.update_name(f"{scope['method']} {route}")
        self._recent[request_id] = span.get_span_context()
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        span.end()

    def wrap_transport(self, inner: TracedTransport) -> TracedTransport:
        """Wrap a transport so that each attempt has a span, and send its `traceparent`."""
        return _TracedRequest(self, inner)

    def begin(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[_Attempt, dict[str, str]]:
        """Start the span of an attempt; return it with the headers to send."""
        parts = urlsplit(url)
        path = next((path for path in _OPERATIONS if parts.path.endswith(path)), "")
        head = _head(body)
        operation, model = _OPERATIONS.get(path, "other"), head.model if isinstance(head.model, str) else ""
        attributes: dict[str, str | int | float] = {
            "gen_ai.operation.name": operation,
            **_parameters(head),
            "http.request.method": "POST",
            "server.address": parts.hostname or "",
            "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        }
        if model:
            attributes["gen_ai.request.model"] = model
        parent = trace.get_current_span()
        self._close(parent)
        span = self._tracer.start_span(f"{operation} {model}".strip(), None, SpanKind.CLIENT, attributes)
        attempt = _Attempt(span)
        if parent.get_span_context().is_valid:
            self._attempts[parent.get_span_context().span_id] = attempt
        trace_headers = dict(headers)
        self._carrier.inject(trace_headers, trace.set_span_in_context(span))
        return attempt, trace_headers

    def end_attempt(self, attempt: _Attempt) -> None:
        """End the span of an attempt whose connection was released, unless its usage is pending."""
        attempt.ended = attempt.ended or time.time_ns()
        if all(other is not attempt for other in self._attempts.values()):
            attempt.span.end(attempt.ended)

    def record_call(self, call: CallRecord, outcome: CallOutcome) -> None:
        """Add the usage and cost of a call to the span of its last attempt."""
        attempt = self._attempts.get(trace.get_current_span().get_span_context().span_id)
        if attempt is None:
            return
        server, _, model = call.target.partition("/")
        kind, usage = self.kinds.get(server, server), outcome.usage
        if call.streamed and call.first_us:
            attempt.span.set_attribute("gen_ai.response.time_to_first_chunk", call.first_us / 1e6)
        for name, tokens in (
            ("cache_read.input_tokens", usage.cached),
            ("cache_creation.input_tokens", usage.cache_write + usage.cache_write_long),
            ("reasoning.output_tokens", usage.reasoning),
        ):
            if tokens:
                attempt.span.set_attribute(f"gen_ai.usage.{name}", tokens)
        attempt.span.set_attributes(
            {
                "gen_ai.provider.name": _PROVIDER_NAMES.get(kind, kind),
                "gen_ai.response.model": model,
                "gen_ai.usage.input_tokens": usage.input,
                "gen_ai.usage.output_tokens": usage.output,
                # These attributes are not in the conventions, but Langfuse and other tools read them.
                "gen_ai.usage.cost": outcome.cost / 1e6,
                "sixfold.server": server,
                "sixfold.account_id": call.account_id,
                "sixfold.key_id": call.key_id or "",
                "sixfold.cost_usd": format_usd(outcome.cost),
                "sixfold.attempts": call.attempts,
                "sixfold.state": outcome.state,
            }
        )
        if outcome.state == "failed":
            attempt.span.set_status(Status(StatusCode.ERROR, outcome.error))
        self._close(trace.get_current_span())

    def _close(self, parent: Span) -> None:
        attempt = self._attempts.pop(parent.get_span_context().span_id, None)
        if attempt is not None:
            attempt.span.end(attempt.ended)

    def record_run(self, _prediction_id: str, event: Event) -> None:
        """Export a span for a run that has ended, below the span of its request if that is known."""
        if not isinstance(event, StateChanged) or not event.prediction.is_terminal:
            return
        run = event.prediction
        parent = self._request(run.request_id)
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent)) if parent else contexts.Context()
        start_ns = (run.started_at or run.created_at) * 1000
        span = self._tracer.start_span(
            f"run {run.model}", context, SpanKind.INTERNAL, _attributes(run), start_time=start_ns
        )
        if run.error is not None:
            span.set_status(Status(StatusCode.ERROR, run.error))
        span.end((run.completed_at or run.created_at) * 1000)

    def _request(self, request_id: str) -> SpanContext | None:
        for scope, span_context in self._open_requests.values():
            if scope.get(_ID) == request_id:
                return span_context
        return self._recent.get(request_id)


class _TracedRequest:
    """A transport that records each POST request in a span."""

    def __init__(self, tracing: Tracing, inner: TracedTransport) -> None:
        self._tracing = tracing
        self._inner = inner

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, stream: bool
    ) -> UpstreamStream:
        """Send a POST request in a span that ends with the response."""
        attempt, trace_headers = self._tracing.begin(url, headers, body)
        try:
            response = await self._inner.post(url, trace_headers, body, stream=stream)
        except BaseException as error:
            attempt.span.set_attribute("error.type", type(error).__name__)
            attempt.span.set_status(
                Status(StatusCode.ERROR, str(error) if isinstance(error, UpstreamFailure) else None)
            )
            self._tracing.end_attempt(attempt)
            raise
        attempt.span.set_attribute("http.response.status_code", response.status)
        if response.status >= 400:
            attempt.span.set_status(Status(StatusCode.ERROR))
        return _TracedResponse(self._tracing, attempt, response)

    async def get(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        """Send a GET request without a span, because only model lists are fetched."""
        return await self._inner.get(url, headers)

    async def delete(self, url: str, headers: Mapping[str, str]) -> UpstreamStream:
        """Send a DELETE request without a span, because it does not run a model."""
        return await self._inner.delete(url, headers)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _TracedResponse:
    """A response that ends its span when it is closed."""

    def __init__(self, tracing: Tracing, attempt: _Attempt, response: UpstreamStream) -> None:
        self._tracing = tracing
        self._attempt = attempt
        self._response = response
        self._first = True
        self.status = response.status
        self.retry_after = response.retry_after

    async def read(self) -> bytes:
        block = await self._response.read()
        if self._first:
            self._attempt.span.add_event("gen_ai.first_chunk")
            self._first = False
        return block

    async def aclose(self) -> None:
        """Release the connection and end the span."""
        await self._response.aclose()
        self._tracing.end_attempt(self._attempt)


def _head(body: bytes) -> _RequestHead:
    try:
        return _decode_head(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _RequestHead()


def _parameters(head: _RequestHead) -> dict[str, str | int | float]:
    parameters: dict[str, str | int | float] = {}
    for name, attribute in _PARAMETERS.items():
        value = getattr(head, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63:
            parameters[attribute] = value
    if head.stream is True:
        parameters["gen_ai.request.stream"] = True
    return parameters


def _attributes(run: Prediction) -> dict[str, str | int]:
    waited = (run.started_at or run.created_at) - run.created_at
    return {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.provider.name": "sixfold",
        "gen_ai.request.model": run.model,
        "sixfold.prediction_id": run.id,
        _ID: run.request_id,
        "sixfold.engine": run.engine,
        "sixfold.quality": run.quality,
        "sixfold.state": str(run.state.value),
        "sixfold.attempt": run.attempt,
        "sixfold.queue_ms": waited // 1000,
        "sixfold.cost_usd": format_usd(run.cost),
    }


def open_tracing(endpoint: str) -> Tracing:
    """Return the exporter for an OTLP endpoint; `OTEL_…` variables set batching, sampling and headers."""
    resource = Resource({"service.name": "sixfold", "service.version": __version__})
    provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)
