"""Events and metrics between the processes of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.app import processes
from sixfold.app.processes import ServerProcesses
from sixfold.core.predictions.events import Event, EventBus, LogEvent, NodeStateChanged, ProgressEvent
from sixfold.store.process_channel import MAX_BYTES, ProcessChannel
from sixfold.web.metrics import merge

_ID = "pred_1"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[list[ServerProcesses]]:
    servers: list[ServerProcesses] = []
    for name in ("zero", "one"):
        channel = ProcessChannel(tmp_path / "processes")
        channel.open(name)
        servers.append(ServerProcesses(channel, EventBus(), tmp_path / "metrics"))
    servers[0].metrics_folder.clear()
    yield servers
    for each in servers:
        each.channel.close()


EVENTS: list[Event] = [
    ProgressEvent(0.25),
    LogEvent("a line\nand é"),
    NodeStateChanged("7", "KSampler", "progress", 0.5),
]


@pytest.mark.parametrize("event", EVENTS)
async def test_event_is_published_in_the_other_process_once(
    pair: list[ServerProcesses], event: Event
) -> None:
    leader, follower = pair
    with leader.bus.listen(_ID) as own, follower.bus.listen(_ID) as other:
        leader.bus.publish(_ID, event)
        assert await other.get() == event
        leader.bus.publish(_ID, LogEvent("end"))
        assert await other.get() == LogEvent("end")
        # An event that was sent back would be between the two.
        assert [own.get_nowait() for _ in range(own.qsize())] == [event, LogEvent("end")]


async def test_progress_is_available_in_the_other_process(pair: list[ServerProcesses]) -> None:
    leader, follower = pair
    with follower.bus.listen(_ID) as events:
        leader.bus.publish(_ID, ProgressEvent(0.5))
        await events.get()
    assert follower.bus.progress(_ID) == 0.5


async def test_event_that_is_too_large_stays_in_its_process(pair: list[ServerProcesses]) -> None:
    leader, follower = pair
    with leader.bus.listen(_ID) as own, follower.bus.listen(_ID) as other:
        leader.bus.publish(_ID, LogEvent("x" * MAX_BYTES))
        leader.bus.publish(_ID, LogEvent("end"))
        assert await other.get() == LogEvent("end")
        assert own.qsize() == 2


async def test_metrics_of_the_other_process_are_collected(pair: list[ServerProcesses]) -> None:
    leader, follower = pair

    async def text() -> bytes:
        return b"calls_total 3.0\n" * 1000

    follower.own_metrics = text
    assert await leader.metrics(b"") == [b"calls_total 3.0\n" * 1000]


async def test_metrics_without_a_response_are_an_error(
    pair: list[ServerProcesses], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "METRICS_SECONDS", 0.01)
    pair[1].channel.subscribe(b"m", lambda _sender, _body: None)
    with pytest.raises(errors.StoreFailed, match="did not send metrics"):
        await pair[0].metrics(b"")


_COUNTS = b"# TYPE calls counter\ncalls_total %d.0\n# TYPE held gauge\nheld 7.0\n"


def numbers(texts: list[bytes]) -> list[str]:
    return [line for line in merge(texts).decode().splitlines() if not line.startswith("#")]


async def test_metrics_do_not_wait_for_a_process_that_ends(pair: list[ServerProcesses]) -> None:
    leader, follower = pair
    follower.channel.subscribe(b"m", lambda _sender, _body: follower.channel.close())
    assert await leader.metrics(b"") == []


async def test_metrics_do_not_wait_for_a_process_in_the_old_list(
    pair: list[ServerProcesses], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = pair
    monkeypatch.setattr(leader.channel, "peers", lambda: (follower.channel.name,))
    follower.channel.close()
    assert await leader.metrics(b"") == []


async def test_counters_of_ended_processes_are_kept(pair: list[ServerProcesses], tmp_path: Path) -> None:
    leader, follower = pair

    async def text() -> bytes:
        return _COUNTS % 3

    follower.own_metrics = text
    assert numbers(await leader.metrics(_COUNTS % 1)) == ["calls_total 3.0", "held 7.0"]
    follower.channel.close()
    assert numbers(await leader.metrics(_COUNTS % 1)) == ["calls_total 3.0"]
    channel = ProcessChannel(tmp_path / "processes")
    channel.open("two")
    two = ServerProcesses(channel, EventBus(), tmp_path / "metrics")
    leader.channel.close()
    assert numbers(await two.metrics(b"")) == ["calls_total 4.0"]
    channel.close()


async def test_counters_exclude_the_previous_run(pair: list[ServerProcesses]) -> None:
    leader, _ = pair
    leader.metrics_folder.write("killed", _COUNTS % 5)
    leader.metrics_folder.clear()
    assert await leader.metrics(b"") == [b""]


async def test_metrics_of_a_single_process_need_no_peer(tmp_path: Path) -> None:
    channel = ProcessChannel(tmp_path)
    channel.open("only")
    only = ServerProcesses(channel, EventBus(), tmp_path / "metrics")
    only.metrics_folder.clear()
    assert await only.metrics(b"calls_total 3.0\n") == []
    channel.close()


def test_merge_adds_counters_and_keeps_the_largest_gauge() -> None:
    first = (
        b'# HELP calls_total Calls\n# TYPE calls_total counter\ncalls_total{route="/a"} 2.0\n'
        b"# HELP wait Seconds\n# TYPE wait histogram\n"
        b'wait_bucket{le="1.0"} 1.0\nwait_bucket{le="+Inf"} 2.0\nwait_count 2.0\nwait_sum 3.5\n'
        b"# HELP held Money\n# TYPE held gauge\nheld 7.0\n"
    )
    second = first.replace(b"/a", b"/b").replace(b"held 7.0", b"held 5.0")
    lines = merge([first, second, second]).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'calls_total{route="/a"} 2.0',
        'calls_total{route="/b"} 4.0',
        'wait_bucket{le="1.0"} 3.0',
        'wait_bucket{le="+Inf"} 6.0',
        "wait_count 6.0",
        "wait_sum 10.5",
        "held 7.0",
    ]
