"""Prometheus metrics: requests by API and route, the queue, the workers, and the money on hold."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from sixfold.core.account_data.retention import Retention
from sixfold.core.database import Database, Query, Transaction
from sixfold.core.gateway.request_log import CallTotals, TokenCounts
from sixfold.core.gpu.report import GpuReports
from sixfold.core.workers.scheduler import Scheduler
from sixfold.web import refusals

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LIVING = ("queued", "starting", "running", "canceling")


class Metrics:
    """The metrics of one server, in a separate registry because a process may have two servers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._responses = _ResponseCounter()
        self._registry.register(self._responses)
        self._registry.register(_RefusedCounter())
        self._predictions = Gauge(
            "sixfold_predictions", "Predictions that have not ended", ("state",), registry=self._registry
        )
        self._workers = Gauge(
            "sixfold_workers", "Workers of each engine", ("engine", "state"), registry=self._registry
        )
        self._memory = Gauge(
            "sixfold_worker_memory_bytes",
            "Memory of this machine that its workers use, and their limit",
            ("state",),
            registry=self._registry,
        )
        self._waiting_engines = Gauge(
            "sixfold_engines_waiting_for_memory",
            "Engines whose next worker does not fit into memory",
            registry=self._registry,
        )
        self._held = Gauge("sixfold_held_usd", "Money on hold", registry=self._registry)
        # Receives the metrics of this process and returns those of the server's other processes.
        self.collect_peers: Callable[[bytes], Awaitable[list[bytes]]] | None = None

    def add_gateway(self, counts: TokenCounts) -> None:
        self._registry.register(_GatewayCounter(counts))

    def add_gpus(self, gpus: GpuReports) -> None:
        """Add the memory of GPUs that several programs share."""
        self._registry.register(_GpuCollector(gpus))

    def add_retention(self, retention: Retention) -> None:
        """Add the counts of records that were deleted and archived by their age."""
        self._registry.register(_RetentionCounter(retention))

    def count_response(self, api: str, route: str, method: str, status: int, seconds: float) -> None:
        """Count a response; `route` is the path template, never the requested path."""
        self._responses.add(api, route, method, status, seconds)

    async def text(self, database: Database, scheduler: Scheduler) -> bytes:
        """Return the metrics of all processes of this server in the text format of Prometheus."""
        own = await self.own_text(database, scheduler)
        peers = await self.collect_peers(own) if self.collect_peers is not None else []
        return await asyncio.to_thread(merge, [own, *peers]) if peers else own

    async def own_text(self, database: Database, scheduler: Scheduler) -> bytes:
        """Return the metrics of this process in the text format of Prometheus."""
        states, held = await database.read(_read_totals())
        for state in _LIVING:
            self._predictions.labels(state).set(states.get(state, 0))
        for engine, counts in scheduler.snapshot().items():
            for state, count in counts.items():
                self._workers.labels(engine, state).set(count)
        used, limit, waiting = scheduler.memory()
        self._memory.labels("taken").set(used)
        self._memory.labels("allowed").set(limit)
        self._waiting_engines.set(waiting)
        self._held.set(held / 1_000_000)
        return generate_latest(self._registry)


class _ResponseCounter(Collector):
    """Counts and durations of responses, in plain numbers because every request updates them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, int], int] = {}
        # The counts of the histogram's buckets and the sum in seconds, by API and route.
        self._times: dict[tuple[str, str], tuple[list[int], list[float]]] = {}

    def add(self, api: str, route: str, method: str, status: int, seconds: float) -> None:
        key = (api, route, method, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get((api, route))
        if times is None:
            times = self._times[api, route] = ([0] * (len(_BUCKETS) + 1), [0.0])
        times[0][bisect_left(_BUCKETS, seconds)] += 1
        times[1][0] += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "sixfold_requests", "Completed requests", labels=("face", "route", "method", "status")
        )
        for (api, route, method, status), count in self._counts.items():
            requests.add_metric((api, route, method, str(status)), count)
        seconds = HistogramMetricFamily(
            "sixfold_request_seconds",
            "Time from the first byte of a request to the last byte of its response",
            labels=("face", "route"),
        )
        ends = [*(str(float(end)) for end in _BUCKETS), "+Inf"]
        for labels, (counts, (total,)) in self._times.items():
            buckets = list(zip(ends, map(float, accumulate(counts)), strict=True))
            seconds.add_metric(labels, buckets, total)
        yield from (requests, seconds)


class _RefusedCounter(Collector):
    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counts, with every reason present from the start."""
        totals = refusals.recorder().totals
        for name, text, reasons in (
            ("sixfold_refused", "Requests, connections and streams refused, by reason", refusals.REASONS),
            (
                "sixfold_connections_refused",
                "Connections refused or closed, by reason",
                refusals.CONNECTION_REASONS,
            ),
        ):
            refused = CounterMetricFamily(name, text, labels=("reason",))
            for reason in reasons:
                refused.add_metric((reason,), totals[reason])
            yield refused


class _GatewayCounter(Collector):
    def __init__(self, counts: TokenCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        calls = CounterMetricFamily(
            "sixfold_relay_calls", "Calls of model servers", labels=("server", "status")
        )
        tokens = CounterMetricFamily("sixfold_relay_tokens", "Tokens of calls", labels=("server", "kind"))
        charged = CounterMetricFamily(
            "sixfold_relay_charged_usd", "Money charged for calls", labels=("server",)
        )
        by_server: dict[str, list[CallTotals]] = {}
        for (server, status), total in self._counts.totals.items():
            calls.add_metric((server, status), total.calls)
            by_server.setdefault(server, []).append(total)
        for server, totals in by_server.items():
            tokens.add_metric((server, "input"), sum(total.input_tokens for total in totals))
            tokens.add_metric((server, "output"), sum(total.output_tokens for total in totals))
            charged.add_metric((server,), sum(total.charged for total in totals) / 1_000_000)
        yield from (calls, tokens, charged)


class _RetentionCounter(Collector):
    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    def collect(self) -> Iterator[CounterMetricFamily]:
        removed_records = CounterMetricFamily(
            "sixfold_retention_removed", "Records deleted after the days of [retention]", labels=("kind",)
        )
        for kind, count in self._retention.removed.items():
            removed_records.add_metric((kind,), count)
        yield removed_records
        totals = self._retention.writer.totals
        for name, text, value in (
            ("segments", "Files written to the archive", totals.segments),
            ("bytes", "Bytes written to the archive", totals.size),
            ("erased", "Records erased from the archive with their accounts", totals.erased),
        ):
            yield CounterMetricFamily(f"sixfold_archive_{name}", text, value=value)


class _GpuCollector(Collector):
    """Collects the memory use of each GPU by program, and the number and duration of waits."""

    def __init__(self, gpus: GpuReports) -> None:
        self._gpus = gpus

    def collect(self) -> Iterator[Metric]:
        memory = GaugeMetricFamily(
            "sixfold_gpu_memory_bytes",
            "Memory of a shared GPU by holder; `others` is that of other programs, `total` all of it",
            labels=("gpu", "holder"),
        )
        waiting = GaugeMetricFamily(
            "sixfold_gpu_waiting", "Uses that wait for memory of a shared GPU", labels=("gpu",)
        )
        for gpu in self._gpus.reports():
            sizes = {"total": gpu["total_bytes"], "others": gpu["other_bytes"]}
            sizes |= dict.fromkeys(gpu["members"], 0)
            for model in gpu["models"]:
                sizes[model["holder"]] = sizes.get(model["holder"], 0) + (model["size_bytes"] or 0)
            for holder, size in sizes.items():
                memory.add_metric((gpu["name"], holder), size)
            waiting.add_metric((gpu["name"],), len(gpu["waiting"]))
        seconds = CounterMetricFamily(
            "sixfold_gpu_wait_seconds", "Time that calls have waited for a shared GPU", labels=("gpu",)
        )
        unloads = CounterMetricFamily(
            "sixfold_gpu_unloads", "Models unloaded so that others fit", labels=("gpu",)
        )
        retries = CounterMetricFamily(
            "sixfold_gpu_memory_retries", "Calls repeated with the whole GPU", labels=("gpu",)
        )
        for name, figures in self._gpus.figures().items():
            seconds.add_metric((name,), figures.waited_seconds)
            unloads.add_metric((name,), figures.unloads)
            retries.add_metric((name,), figures.memory_retries)
        yield from (memory, waiting, seconds, unloads, retries)


def merge(texts: Iterable[bytes], *, with_gauges: bool = True) -> bytes:
    """Merge metrics of several processes: sums of counters and histograms, maximums of gauges."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text.decode()):
            if family.type == "gauge" and not with_gauges:
                continue
            families.setdefault(family.name, family)
            totals = values.setdefault(family.name, {})
            for sample in family.samples:
                key = sample.name, tuple(sample.labels.items())
                total = totals.get(key, 0.0)
                is_gauge = family.type == "gauge"
                totals[key] = max(total, sample.value) if is_gauge else total + sample.value
    for name, family in families.items():
        family.samples = [
            Sample(sample, dict(labels), value) for (sample, labels), value in values[name].items()
        ]
    registry = CollectorRegistry()
    registry.register(_Merged(families.values()))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _read_totals() -> Transaction[tuple[dict[str, int], int]]:
    states = yield Query("prediction_states", {})
    held = yield Query("ledger_held", {})
    return {str(row["state"]): int(row["total"]) for row in states}, int(held[0]["held"])
