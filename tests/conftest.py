"""Configuration of every test: no network beyond localhost, no API keys, no settings from outside."""

from __future__ import annotations

import errno
import gc
import ipaddress
import os
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.harness import backends, bytecode

# A provider's client would read a key from these variables, or this server a setting.
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
OUTSIDE = ("SIXFOLD_", "OPENAI_", "ANTHROPIC_", "FAL_", "REPLICATE_", "GEMINI_", "HF_", "STRIPE_", "AWS_")
CONTAINER_HOST = "host.docker.internal"
# Tests do not find a model server or ComfyUI of this machine; their own servers have other ports.
DEFAULT_PORTS = frozenset({1234, 8000, 8080, 8188, 11434, 30000})
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 8 << 30
# The product's servers collect as seldom (cli/server/serve.py).
COLLECT_EVERY = (20_000, 20, 20)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

# `make nightly` runs all property tests again, with the profile `nightly`.
settings.register_profile("default", deadline=None, max_examples=25)
settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
settings.register_profile("nightly", max_examples=100)


def is_local(host: str) -> bool:
    """Return whether `host` is this machine; names other than localhost are not resolved."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host in {"", "localhost"} or host.endswith(".localhost")


def refuse_the_network(event: str, args: tuple[Any, ...]) -> None:
    """Audit hook: reject connections and look-ups that would leave this machine, naming the host."""
    if event == "socket.connect":
        address: Any = args[1]
        host = address[0] if isinstance(address, tuple) else None
    elif event == "socket.getaddrinfo":
        address, host = None, args[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    # Every server resolves this name; fail as on a machine outside a container.
    if host == CONTAINER_HOST:
        raise socket.gaierror(socket.EAI_NONAME, "no such host")
    if event == "socket.connect" and isinstance(host, str) and address[1] in DEFAULT_PORTS:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "the tests do not use servers of this machine")
    if isinstance(host, str) and not is_local(host) and host not in {"0.0.0.0", "::"}:
        raise RuntimeError(f"A test may not reach {host}: use a loopback fake (tests/conftest.py).")


def use_memory() -> None:
    """Put temporary files in memory, where a commit does not wait for a disk, unless TMPDIR is set."""
    if sys.platform != "linux" or "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    result = os.statvfs(MEMORY)
    if result.f_bavail * result.f_frsize >= MEMORY_BYTES and not result.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options of the suite; xdist passes them on to its workers."""
    parser.addoption(
        "--ground",
        default=os.environ.get("SIXFOLD_TEST_GROUND", ""),
        help="run everything on sqlite or postgres, and on files or s3, as in postgres+s3",
    )
    parser.addoption(
        "--pictures", action="store_true", help="make the pictures of docs/pictures that tests make, anew"
    )
    parser.addoption(
        "--skipped-to", type=Path, help="write the ids of skipped tests to this file, for `pytest @FILE`"
    )
    parser.addoption(
        "--spaces", action="store_true", help="also run real Gradio in a container: about a minute"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Isolate the process before any module of the product is imported."""
    # The collector is enabled again once the tests are collected.
    gc.disable()
    use_memory()
    backends.choose(str(config.getoption("--ground")), _run_id(config)[:12])
    for name in list(os.environ):
        if name.startswith(OUTSIDE) or name in PROXIES:
            del os.environ[name]
    sys.addaudithook(refuse_the_network)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell without job control starts `pytest &` with SIGINT ignored, and every program that a test
        # starts and interrupts would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a parameter that is not a fixture before any test runs, not when that test's turn comes."""
    for item in items:
        fixtures: Any = getattr(item, "_fixtureinfo", None)
        for name in fixtures.names_closure if fixtures else ():
            if name != "request" and name not in fixtures.name2fixturedefs:
                raise pytest.UsageError(f"{item.nodeid}: there is no fixture {name!r}. Rename the parameter.")


def pytest_collection_finish() -> None:
    """Exclude the modules and the tests of the suite, a million objects, from garbage collection."""
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers of the run after its last worker, which xdist may have killed."""
    if not hasattr(config, "workerinput"):
        backends.stop()


def _run_id(config: pytest.Config) -> str:
    """Return the id that the controller and the workers of a run share."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        return str(worker["testrunuid"])
    # An option of xdist, which would choose another id.
    config.option.testrunuid = getattr(config.option, "testrunuid", None) or uuid.uuid4().hex
    return str(config.option.testrunuid)


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of CPU cores plus two, at most 8: tests also wait for servers and disks."""
    return min(8, len(os.sched_getaffinity(0)) + 2)


@pytest.fixture(params=backends.EACH_DATABASE)
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder whose database is SQLite, then one whose database is PostgreSQL."""
    backends.database_url(tmp_path, request.param)
    return tmp_path


@pytest.fixture
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the folder for images that tests write: temporary, or the documentation with `--pictures`."""
    return PICTURES if request.config.getoption("--pictures") else tmp_path


@pytest.fixture(autouse=True)
def _ground_is_cleared() -> Iterator[None]:
    """Drop the databases of a test after it, and check that no library changed the scheduling policy."""
    yield
    backends.forget()
    if sys.platform == "linux":
        assert os.sched_getscheduler(0) == os.SCHED_OTHER, "this process was made a real-time one"


class FailureReporter:
    """Plugin that reports failures immediately, so that the log of an interrupted run names them.

    Under xdist it runs in the controller process.
    """

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print one line per failure: the test, the phase, its seconds and the reason."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = (crash.message if crash else str(report.longrepr)).strip().partition("\n")[0][:200]
            self._reporter.write_line(
                f"failed: {report.nodeid} ({report.when}, {report.duration:.0f} s): {reason}"
            )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the ids of skipped tests, so that a run with more extras installed can be limited to them."""
    path: Path | None = terminalreporter.config.getoption("--skipped-to")
    if path is not None:
        skipped = {report.nodeid for report in terminalreporter.stats.get("skipped", [])}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{nodeid}\n" for nodeid in sorted(skipped)), "utf-8")


@pytest.hookimpl(trylast=True)  # Hypothesis refuses access to its storage before its own function
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile modules with the other workers; in CI, where a run may be interrupted, report failures."""
    bytecode.compile_share(session.config)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(FailureReporter(reporter), "failure-reporter")


@pytest.fixture
def without_gc() -> Iterator[None]:
    """Leave objects in reference cycles alive until the end of the test."""
    gc.disable()
    yield
    gc.enable()
