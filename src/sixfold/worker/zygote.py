"""The zygote: one small process with the heavy libraries loaded, from which workers are forked.

Run as `python -m sixfold.worker.zygote DESCRIPTOR MODULE…`. It has one thread, opens nothing and
decides nothing; it reaps, it ends what a worker leaves behind, and it ends every worker and itself as soon as
its server is gone. Linux only (record sockets, parent-death signals, adopted orphans).
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

_DESCRIPTORS = 2  # that come with a `SpawnWorker`: the worker's socket, its output pipe
_FAREWELL_SECONDS = 2.0  # for what was killed to be gone


class _Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: dict[str, int] = {}
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        main.adopt_orphans()

    def serve(self) -> None:
        """Answer the server until it is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        self._tell(protocol.ZygoteReady())
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._wake:
                    os.read(self._wake, 4096)
                    self._reap()
                elif not self._hear():
                    return

    def end(self) -> None:
        """Kill every worker with all that it started."""
        for pid in self._workers.values():
            _kill_group(pid)
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while (left := _children()) and time.monotonic() < deadline:
            _bury(left)
            if select.select([self._wake], [], [], _FAREWELL_SECONDS)[0]:
                os.read(self._wake, 4096)

    def _hear(self) -> bool:
        room = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
        data, ancillary, _, _ = self._control.recvmsg(
            protocol.MAX_RECORD_BYTES, room, socket.MSG_CMSG_CLOEXEC
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
                    _learn(order.factory)
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
            self._tell(protocol.WorkerExited(order.worker, f"could not be forked: {error.strerror}"))
        if pid == 0:
            self._control.detach()  # closed by number below; the object must not close it again
            _be_worker(link, output, order, zygote)
        os.close(link)
        os.close(output)
        if pid > 0:
            self._workers[order.worker] = pid
            self._tell(protocol.WorkerSpawned(order.worker, pid))

    def _reap(self) -> None:
        for worker, pid in list(self._workers.items()):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            _kill_group(pid)  # before the reaping: until then the number is surely its own
            _, status = os.waitpid(pid, 0)
            del self._workers[worker]
            self._tell(protocol.WorkerExited(worker, _reason(status)))
        _bury(_children() - set(self._workers.values()))

    def _tell(self, message: protocol.WorkerMessage) -> None:
        self._control.send(protocol.encode(message))


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)  # it may not have made its group yet
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> set[int]:
    """The processes whose parent this one is, or has become; none where the kernel does not tell."""
    with suppress(FileNotFoundError):
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    return set()


def _bury(pids: set[int]) -> None:
    """Kill and reap; what they had started becomes this process's own when they are dead, and comes next."""
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
        with suppress(ImportError):  # an optional package that is not installed
            importlib.import_module(name)
    cv2 = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(1)
    _freeze()


def _learn(factory: str) -> None:
    """Import the module of an engine, once: its workers are born with it."""
    module = factory.partition(":")[0]
    if module not in sys.modules:
        with suppress(Exception):  # the worker meets the same, and tells it
            importlib.import_module(module)
        _freeze()


def _freeze() -> None:
    """Keep the pages shared: a child's collector does not write to what is frozen."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _preload(sys.argv[2:])
    zygote = _Zygote(socket.socket(fileno=int(sys.argv[1])))
    try:
        zygote.serve()
    except OSError:
        pass  # the server broke the line: the same as its end
    finally:
        zygote.end()
        os._exit(0)
