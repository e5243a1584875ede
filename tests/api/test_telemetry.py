"""Spans of requests, attempts and runs that a collector on loopback receives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sixfold.settings import InvalidSetting, load
from tests.api.gateway import Gateway, running_gateway
from tests.fakes import fault_server
from tests.harness.backends import FILES

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    """OTLP collector that records spans."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {}
        self.credentials: set[str] = set()

    async def take(self, request: Request) -> Response:
        self.credentials.add(request.headers.get("authorization", ""))
        document = ExportTraceServiceRequest.FromString(await request.body())
        for scope in (scope for resource in document.resource_spans for scope in resource.scope_spans):
            for span in scope.spans:
                self.spans.setdefault(span.name, []).append(span)
        return Response(b"", media_type="application/x-protobuf")


def facts(span: Any) -> dict[str, Any]:
    """Return a span's attributes as Python values."""
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in span.attributes
    }


@asynccontextmanager
async def watch(folder: Path, path: str = "", **policy: Any) -> AsyncIterator[tuple[Gateway, Collector]]:
    """Run an app whose collector has received everything when it closes."""
    collector = Collector()
    async with fault_server.serve([Route(f"{path}/v1/traces", collector.take, methods=["POST"])]) as port:
        settings = {**FILES, "otel_endpoint": f"http://127.0.0.1:{port}{path}"}
        # The first call imports the library of traces, which takes seconds on a busy machine.
        policy = {"timeout_seconds": 60, **policy}
        async with running_gateway(folder, settings=settings, **policy) as gateway:
            yield gateway, collector


async def test_a_call_is_one_trace_from_the_caller_to_the_model(tmp_path: Path) -> None:
    async with watch(tmp_path) as (gateway, collector):
        body = {"model": "both", "messages": [{"role": "user", "content": "say 3 words"}]}
        headers = {**gateway.headers, "traceparent": CALLER}
        gateway.acme.mode = "fail"
        response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=headers)
        assert response.status_code == 200
        passed = [server.requests[0].headers["traceparent"] for server in (gateway.acme, gateway.anth)]
        streamed = await gateway.chat("say 3 words", "anth/small", stream=True)
        assert streamed.status_code == 200, streamed.text
        await gateway.settled(2)
    (request, _) = sorted(
        collector.spans["POST /v1/chat/completions"], key=lambda span: span.start_time_unix_nano
    )
    tries = sorted(collector.spans["chat small"], key=lambda span: span.start_time_unix_nano)
    assert request.trace_id.hex() == CALLER.split("-")[1]
    assert request.parent_span_id.hex() == CALLER.split("-")[2]
    assert facts(request)["http.response.status_code"] == 200
    assert facts(request)["sixfold.request_id"] == response.headers["x-request-id"]
    assert [span.parent_span_id for span in tries[:2]] == [request.span_id] * 2
    assert [header.split("-")[2] for header in passed] == [span.span_id.hex() for span in tries[:2]]
    failed, served = facts(tries[0]), facts(tries[1])
    assert (failed["http.response.status_code"], "gen_ai.usage.input_tokens" in failed) == (500, False)
    assert (served["gen_ai.provider.name"], served["gen_ai.operation.name"]) == ("anthropic", "chat")
    assert (served["sixfold.server"], served["sixfold.account_id"]) == ("anth", gateway.app.account.id)
    assert (served["gen_ai.usage.input_tokens"], served["gen_ai.usage.output_tokens"]) == (14, 3)
    assert served["sixfold.cost_usd"] == response.headers["x-sixfold-cost"]
    assert [event.name for event in tries[2].events] == ["gen_ai.first_chunk"]
    assert facts(tries[2])["gen_ai.usage.output_tokens"] == 3
    assert facts(tries[2])["gen_ai.request.stream"] is True
    assert facts(tries[2])["gen_ai.response.time_to_first_chunk"] > 0
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in tries)


async def test_a_langfuse_endpoint_gets_parameters_usage_and_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20cGs6c2s=")
    async with watch(tmp_path, "/api/public/otel") as (gateway, collector):
        request = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 20, "seed": 7}
        answer = await gateway.chat("say 3 words", **request)
        assert answer.status_code == 200
        await gateway.settled()
    assert collector.credentials == {"Basic cGs6c2s="}
    response = facts(collector.spans["chat small"][0])
    assert {name.rpartition(".")[2]: value for name, value in response.items() if ".request." in name} == {
        **request,
        "model": "small",
        "method": "POST",
    }
    assert response["gen_ai.provider.name"] == "openai"
    assert response["gen_ai.usage.cost"] == float(answer.headers["x-sixfold-cost"])
    assert (response["gen_ai.usage.input_tokens"], response["gen_ai.usage.cache_read.input_tokens"]) == (
        10,
        4,
    )


async def test_span_of_a_run_is_a_child_of_its_request(tmp_path: Path) -> None:
    async with watch(tmp_path) as (gateway, collector):
        body = {"service": "ra1", "prompt": "a hill"}
        answer = await gateway.app.client.post("/api/service", json=body, headers=gateway.headers)
        assert answer.status_code == 200, answer.text
    (run,) = collector.spans["run ra1"]
    (request,) = collector.spans["POST /api/service"]
    assert (run.trace_id, run.parent_span_id) == (request.trace_id, request.span_id)
    response = facts(run)
    assert response["sixfold.prediction_id"] == answer.json()["id"]
    assert (response["sixfold.state"], response["sixfold.cost_usd"]) == ("succeeded", answer.json()["cost"])


def test_collector_setting_is_the_standard_one_and_must_be_url(tmp_path: Path) -> None:
    base = {"SIXFOLD_DATA_DIR": str(tmp_path)}
    named = load({**base, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"})
    assert named.otel_endpoint == "http://127.0.0.1:4318"
    assert not load(base).otel_endpoint
    below = load({**base, "SIXFOLD_OTEL_ENDPOINT": "https://langfuse.example/api/public/otel"})
    assert below.otel_endpoint == "https://langfuse.example/api/public/otel"
    with pytest.raises(InvalidSetting, match="otel_endpoint must be a URL"):
        load({**base, "SIXFOLD_OTEL_ENDPOINT": "somewhere"})
