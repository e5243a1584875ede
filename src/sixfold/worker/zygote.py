"""The zygote: a small process with the heavy libraries loaded, from which workers are forked.

Run as `python -m sixfold.worker.zygote DESCRIPTOR MODULE…`. It has one thread and makes no decisions: it
reaps workers, kills the child processes that they leave behind, and kills all workers and itself as soon as
its server has ended. Linux only (record sockets, parent-death signals, subreaper).
"""

from __future__ import annotations

import array
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from sixfold.worker import main, protocol

# Descriptors sent with a `SpawnWorker`: the worker's socket and its output pipe.
_DESCRIPTORS = 2
# The time in seconds that killed processes have to end.
_FAREWELL_SECONDS = 2.0


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[str, int] = {}
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        main.adopt_orphans()

    def serve(self) -> None:
        """Handle requests until the server has ended."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        self._send(protocol.ZygoteReady())
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    os.read(self._wake, 4096)
                    self._reap()
                elif not self._handle_request():
                    return

    def end(self) -> None:
        """Kill every worker and its child processes."""
        for pid in self._workers.values():
            _kill_group(pid)
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while (children := _children()) and time.monotonic() < deadline:
            _reap_orphans(children)
            if select.select([self._wake], [], [], _FAREWELL_SECONDS)[0]:
                os.read(self._wake, 4096)

    def _handle_request(self) -> bool:
        ancillary_size = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
        data, ancillary, _, _ = self._control.recvmsg(
            protocol.MAX_RECORD_BYTES, ancillary_size, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            return False
        descriptors = array.array("i")
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(payload)
        match protocol.to_zygote.decode(data):
            case protocol.SpawnWorker() as order:
                link, output = descriptors
                if order.resident:
                    _import_engine(order.factory)
                self._fork(order, link, output)
            case protocol.KillWorker(worker):
                if worker in self._workers:
                    _kill_group(self._workers[worker])
        return True

    def _fork(self, order: protocol.SpawnWorker, link: int, output: int) -> None:
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._send(protocol.WorkerExited(order.worker, f"could not be forked: {error.strerror}"))
        if pid == 0:
            # The descriptor is closed by number below; the object must not close it again.
            self._control.detach()
            _be_worker(link, output, order, zygote)
        os.close(link)
        os.close(output)
        if pid > 0:
            self._workers[order.worker] = pid
            self._send(protocol.WorkerSpawned(order.worker, pid))

    def _reap(self) -> None:
        for worker, pid in list(self._workers.items()):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            # Kill before reaping: until then, the process id cannot be reused.
            _kill_group(pid)
            _, status = os.waitpid(pid, 0)
            del self._workers[worker]
            self._send(protocol.WorkerExited(worker, _reason(status)))
        _reap_orphans(_children() - set(self._workers.values()))

    def _send(self, message: protocol.WorkerMessage) -> None:
        self._control.send(protocol.encode(message))


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        # The process may not have created its group yet.
        os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> set[int]:
    """Return the child processes of this process, including adopted orphans; empty if unknown."""
    with suppress(FileNotFoundError):
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    return set()


def _reap_orphans(pids: set[int]) -> None:
    """Kill and reap processes; their orphans are adopted and handled by the next call."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _reason(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _be_worker(link: int, output: int, order: protocol.SpawnWorker, zygote: int) -> NoReturn:
    try:
        main.serve(link, output, order, zygote)
    except BaseException:  # noqa: BLE001 - the outermost loop: a child must never return into the zygote's
        traceback.print_exc()
    finally:
        os._exit(1)


def _preload(modules: list[str]) -> None:
    for name in modules:
        # An optional package may be missing.
        with suppress(ImportError):
            importlib.import_module(name)
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(1)
    _freeze()


def _import_engine(factory: str) -> None:
    """Import the module of an engine once, so that forked workers start with it loaded."""
    module = factory.partition(":")[0]
    if module not in sys.modules:
        # The worker hits the same error and reports it.
        with suppress(Exception):
            importlib.import_module(module)
        _freeze()


def _freeze() -> None:
    """Move all objects out of the garbage collector's reach, so that forked pages stay shared."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload(sys.argv[2:])
    zygote = _Zygote(socket.socket(fileno=int(sys.argv[1])))
    try:
        zygote.serve()
    except OSError:
        # A broken connection means that the server has ended.
        pass
    finally:
        zygote.end()
        os._exit(0)
