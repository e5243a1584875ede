"""Build the image, start it with podman alone and as the compose file does, use it, hurt it, and weigh it;
then build a space of real Gradio, and run it.

    make images                       stand-ins for the images of others: see deploy/check/Dockerfile
    make images ARGS="--real"         the images themselves, from their registry
    make images ARGS="--only server"  one server alone, or `cluster`, or `space`

It needs root, and podman, runc, netavark, aardvark-dns and debootstrap of Debian; podman-compose it installs
into an environment of its own. What it makes stays in --folder, so that a second time is quick.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import io
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from PIL import Image

from tests.e2e.cluster import JOBS, Cluster, Database, Work, wrongs
from tests.e2e.servers import Server
from tests.harness.podman import CONFIGURATION
from tools import lock, sizes

BASE = "docker.io/library/python:3.11-slim"
STAND_INS = {
    "database": "docker.io/library/postgres:18-alpine",
    "store": "docker.io/chrislusf/seaweedfs:4.47",
    "proxy": "docker.io/library/nginx:1.28-alpine",
}
SYSTEM = "ca-certificates,netbase,tzdata,python3.11,python3-distutils,python3.11-venv"
MACHINES = ("/etc/ssl/certs", "/etc/pip.conf")  # what a machine may need to reach its package index
SHUT_IN = ["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
RUNS, PAGES = range(12), 6
PREVIEWS = "SIXFOLD_PREVIEWS: allow"
READY_SECONDS = 240.0


class Wrong(Exception):
    """Something is not as deploy/ says."""


class Refused(Wrong, OSError):
    """A request had no success."""


@dataclass
class Podman:
    """Podman with its images, containers and volumes in one folder."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "containers.conf").write_text(CONFIGURATION)
        self.environ = {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}
        places = f"--root {self.folder}/store --runroot {self.folder}/run"
        self.program = self.folder / "podman"  # podman-compose asks for one program
        self.program.write_text(f'#!/bin/sh\nexec podman {places} "$@"\n')
        self.program.chmod(0o755)

    def __call__(self, *words: str, fails: bool = False) -> str:
        """What a command printed; it must succeed, or fail where it `fails`."""
        done = subprocess.run(
            [self.program, *words], env=self.environ, capture_output=True, text=True, check=False
        )
        if bool(done.returncode) != fails:
            response = f"{done.stdout}\n{done.stderr}".strip()[-2000:]
            raise Wrong(f"podman {' '.join(words)[:200]}: status {done.returncode}\n{response}")
        return done.stdout.strip()

    def build(self, file: str, tag: str, *words: str) -> float:
        """Build an image; gives the seconds that it took."""
        began = time.monotonic()
        shared = [word for path in MACHINES if Path(path).exists() for word in ("-v", f"{path}:{path}:ro")]
        here = ["--format", "docker", "--network", "host", *shared, "-f", str(lock.ROOT / file), "-t", tag]
        self("build", *here, *words, str(lock.ROOT))
        return time.monotonic() - began

    def megabytes(self, image: str) -> float:
        """What an image takes with all its layers."""
        return int(self("image", "inspect", "--format", "{{.Size}}", image)) / sizes.MEGABYTE


def stand_ins(podman: Podman) -> None:
    """Images under the names of those that deploy/ takes from a registry, out of Debian and an index."""
    if podman("images", "-q", BASE) == "":
        system = podman.folder / "bookworm"
        command = ["debootstrap", "--variant=minbase", f"--include={SYSTEM}", "bookworm", str(system)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name, target in (("bin/python3", "python3.11"), ("local/bin/python", "/usr/bin/python3.11")):
            (system / "usr" / name).unlink(missing_ok=True)
            (system / "usr" / name).symlink_to(target)
        archive = podman.folder / "base.tar"
        subprocess.run(
            ["tar", "-C", system, "-cf", archive, "--exclude=./var/cache/apt/archives/*.deb", "."], check=True
        )
        podman("import", "-q", "--change", "CMD python", str(archive), BASE)
        archive.unlink()
        shutil.rmtree(system)
    for target, name in STAND_INS.items():
        podman.build("deploy/check/Dockerfile", name, "--target", target, "--pull=never")


def said(what: str, *figures: str) -> None:
    """One line of the report."""
    print(f"{what:34} {', '.join(figures)}", flush=True)


def until(ready: Callable[[], bool], what: str) -> float:
    """Wait for something; gives the seconds."""
    began = time.monotonic()
    while time.monotonic() < began + READY_SECONDS:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ready():
                return time.monotonic() - began
        time.sleep(0.1)
    raise Wrong(f"{what} did not happen in {READY_SECONDS:.0f} s")


@dataclass
class Caller:
    """Who asks a server under a key."""

    origin: str
    key: str = ""

    def __call__(self, path: str, body: Any = None, method: str | None = None) -> bytes:
        """One request, which succeeds; a `body` is sent as JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.origin + path, data, headers, method=method)  # noqa: S310  # an address of this check
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  # the same
                return answer.read()
        except urllib.error.HTTPError as error:
            raise Refused(f"{path}: {error.code} {error.read().decode()[:500]}") from error

    def json(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The answer's JSON."""
        return json.loads(self(path, body, method))

    def ready(self) -> bool:
        """Whether it takes requests."""
        return self("/readyz") is not None

    def drawing(self) -> str:
        """Have a drawing made of a picture: by an engine that is no preview."""
        model, inputs = JOBS[2]
        body = self.json("/api/containers/run", {"model": model, "input": inputs})
        drawn = self(urlsplit(body["output"]["url"]).path)
        if b"<svg" not in drawn:
            raise Wrong(f"the drawing is {drawn[:80]!r}")
        return f"{model}: {len(drawn):,} bytes"

    def picture(self, seed: int, width: int = 640, height: int = 384) -> str:
        """Make a picture and look whether it is one."""
        query = f"prompt=a+harbour&width={width}&height={height}&seed={seed}"
        image = Image.open(io.BytesIO(self(f"/create_image?{query}")))
        image.load()
        if image.size != (width, height):
            raise Wrong(f"the picture is {image.size}")
        return f"{image.width}×{image.height} {image.format}"


def one_server(podman: Podman) -> None:
    """The image by itself: refused, begun, used, backed up, drained, begun again."""
    took = podman.build("deploy/Dockerfile", "sixfold")
    whole, base = podman.megabytes("sixfold"), podman.megabytes(BASE)
    said("image", f"{whole:.0f} MB, {whole - base:.0f} MB of it beside the base", f"built in {took:.0f} s")
    data = f"data-{secrets.token_hex(4)}"
    held = [*SHUT_IN, "-v", f"{data}:/srv/sixfold"]
    podman("run", "--rm", *held, "sixfold", fails=True)
    said("without an account and an origin", "refused to start")
    result = podman(
        "run", "--rm", *held, "sixfold", "account", "create", "you@example.com", "--credit", "10", "--json"
    )
    port = _free_port()
    caller = Caller(f"http://127.0.0.1:{port}", json.loads(result)["api_key"])
    port_options = [
        "-p",
        f"127.0.0.1:{port}:8600",
        "-e",
        f"SIXFOLD_PUBLIC_URL={caller.origin}",
        "-e",
        "SIXFOLD_PREVIEWS=allow",
    ]
    podman("run", "-d", "--name", data, *held, *port_options, "sixfold")
    try:
        said("read-only, no capabilities", f"ready in {until(caller.ready, 'ready'):.1f} s")
        _look_inside(podman, data)
        said("picture", caller.picture(1))
        url = caller.json("/api/containers/run", {"model": "piano", "input": {"bars": 4, "seed": 1}})[
            "output"
        ]["url"]
        caller("/api/pages", {"slug": "kept", "title": "Kept", "body": "Written before the stop."})
        _back_up(podman, data)
        drained = f"/api/containers/predictions/{_drain(podman, data, caller)}"
        podman("start", data)
        until(caller.ready, "ready again")
        until(lambda: caller.json(drained)["status"] == "succeeded", "the end of the run")
        remaining = (len(caller(url.removeprefix(caller.origin))), caller.json("/api/pages/kept")["body"])
        if not remaining[0] or "before the stop" not in remaining[1]:
            raise Wrong(f"after a restart there is {remaining}")
        said("started again", "page, sound and account are there", _verified(podman, data))
    finally:
        podman("rm", "-f", data)
        podman("volume", "rm", data)


def _look_inside(podman: Podman, name: str) -> None:
    user = podman("exec", name, "id", "-u")
    podman("exec", name, "touch", "/opt/sixfold/touched", fails=True)
    podman("healthcheck", "run", name)
    said("inside", f"user {user}", "the root cannot be written", "healthy by HEALTHCHECK")


def _verified(podman: Podman, name: str) -> str:
    return podman("exec", name, "sixfold", "ledger", "verify").splitlines()[-1].strip()


def _back_up(podman: Podman, name: str) -> None:
    podman("exec", name, "sixfold", "backup", "/srv/sixfold/all.tar")
    words = ["-v", f"{name}:/from:ro", "-v", f"{name}-copy:/srv/sixfold", *SHUT_IN]
    response = podman("run", "--rm", *words, "sixfold", "restore", "/from/all.tar", "--verify")
    podman("volume", "rm", f"{name}-copy")
    said("backup, restored elsewhere", response.rpartition("verified")[2].strip())


def _drain(podman: Podman, name: str, caller: Caller) -> str:
    """SIGTERM in the middle of a run: whoever waits is let go with its id, which this gives."""
    messages: list[Any] = []
    expected = {"model": "ra2", "input": {"prompt": "a harbour", "width": 2048, "height": 2048}, "wait": 60}
    asking = threading.Thread(target=lambda: messages.append(caller.json("/api/containers/run", expected)))
    asking.start()
    path = "/api/containers/predictions?limit=1"
    until(lambda: caller.json(path)["predictions"][0]["status"] == "running", "a run")
    began = time.monotonic()
    podman("stop", "-t", "45", name)
    asking.join()
    status = podman("inspect", "--format", "{{.State.ExitCode}}", name)
    if status != "0" or not messages:
        raise Wrong(f"SIGTERM: status {status}, answered {messages}")
    took = time.monotonic() - began
    said("SIGTERM in the middle of a run", f"answered {messages[0]['status']}", f"status 0 in {took:.1f} s")
    return str(messages[0]["id"])


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Door(Server):
    """The proxy before all servers; commands run inside the first of them."""

    def __init__(self, compose: Compose, port: int, key: str) -> None:
        self.compose, self.port, self._key = compose, port, key

    @property
    def key(self) -> str:
        """The account's key."""
        return self._key

    async def command(self, *arguments: str, **environ: str) -> tuple[int, str]:
        """Run an administration command; it succeeds."""
        response = await asyncio.to_thread(self.compose, "exec", "-T", "server-1", "sixfold", *arguments)
        return 0, response


@dataclass
class Compose:
    """The compose file in a folder of its own, with its secrets."""

    podman: Podman
    port: int

    def __post_init__(self) -> None:
        self.name = f"check{secrets.token_hex(3)}"
        self.folder = self.podman.folder / self.name
        shutil.copytree(lock.ROOT / "deploy" / "compose", self.folder)
        file = self.folder / "compose.yaml"  # the session's engine is a preview
        file.write_text(
            file.read_text().replace("SIXFOLD_PUBLIC_URL:", f"{PREVIEWS}\n    SIXFOLD_PUBLIC_URL:")
        )
        words = {"DATABASE_PASSWORD": secrets.token_hex(16), "STORE_PASSWORD": secrets.token_hex(16)}
        words |= {"PORT": str(self.port), "PUBLIC_URL": self.origin}
        (self.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in words.items()))
        (self.folder / "server.key").write_bytes(secrets.token_bytes(32))
        os.chown(self.folder / "server.key", 10001, 10001)
        self.tools = self.podman.folder / "tools"
        if not (self.tools / "bin" / "podman-compose").exists():
            venv.create(self.tools, with_pip=True)
            subprocess.run([self.tools / "bin" / "pip", "install", "-q", "podman-compose"], check=True)

    @property
    def origin(self) -> str:
        """Where the proxy listens."""
        return f"http://127.0.0.1:{self.port}"

    def __call__(self, *words: str) -> str:
        """What podman-compose printed."""
        program = [
            self.tools / "bin" / "podman-compose",
            "--podman-path",
            self.podman.program,
            "-p",
            self.name,
        ]
        done = subprocess.run(
            [*program, *words],
            cwd=self.folder,
            env=self.podman.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Wrong(
                f"compose {' '.join(words)}: {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
            )
        return done.stdout.strip()

    def container(self, service: str, number: int = 1) -> str:
        """A container's name."""
        return f"{self.name}_{service}_{number}"

    def keep_logs(self) -> Path:
        """Write down what every container has said, for whoever looks for a cause; gives the folder."""
        folder = self.podman.folder / "logs" / self.name
        folder.mkdir(parents=True)
        for name in self.containers():
            with (folder / f"{name}.log").open("wb") as log:
                command = [self.podman.program, "logs", name]
                subprocess.run(
                    command, env=self.podman.environ, stdout=log, stderr=subprocess.STDOUT, check=False
                )
        return folder

    def containers(self) -> list[str]:
        """The names of all of its containers."""
        return self.podman("ps", "-a", "--filter", f"name={self.name}", "--format", "{{.Names}}").split()

    def healthy(self, service: str) -> bool:
        """Ask its HEALTHCHECK: nothing does so by itself where there is no systemd."""
        with contextlib.suppress(Wrong):
            return self.podman("healthcheck", "run", self.container(service)) is not None
        return False


async def cluster(podman: Podman, built: bool) -> None:
    """The compose file: begun as its page says, used through the proxy, hurt, stopped."""
    if not built:
        podman.build("deploy/Dockerfile", "sixfold", "--build-arg", "EXTRAS=embedded,postgres,objects,ray")
    said("image with Ray", f"{podman.megabytes('sixfold'):.0f} MB")
    compose = Compose(podman, _free_port())
    try:
        compose("up", "-d", "--no-build", "database", "store")
        for service in ("database", "store"):
            until(lambda service=service: compose.healthy(service), service)
        response = compose(
            "run",
            "--rm",
            "-T",
            "server-1",
            "account",
            "create",
            "you@example.com",
            "--credit",
            "10",
            "--json",
        )
        key = json.loads(response[response.index("{") :])["api_key"]
        compose("up", "-d", "--no-build")
        caller = Caller(compose.origin, key)
        said("through the proxy", f"ready in {until(caller.ready, 'a server'):.1f} s", caller.drawing())
        until(lambda: compose.healthy("head"), "the head")
        await _hurt(compose, key)
        said("stopped", *_stop(compose))
    except Wrong:
        said("what the containers said", str(compose.keep_logs()))
        raise
    finally:
        with contextlib.suppress(Wrong):
            compose("down", "-v", "-t", "5")
        shutil.rmtree(compose.folder, ignore_errors=True)


def _stop(compose: Compose) -> list[str]:
    """Stop all of it; gives the seconds, and after how many each container had ended."""
    began, clock = time.monotonic(), time.time()
    compose("stop", "-t", "45")
    took = time.monotonic() - began
    ended = {
        name: float(compose.podman("inspect", "--format", "{{.State.FinishedAt.UnixMilli}}", name)) / 1000
        for name in compose.containers()
    }
    parts = [f"{name.removeprefix(compose.name)[1:]} {end - clock:.1f}" for name, end in ended.items()]
    return [f"in {took:.1f} s", *sorted(parts)]


async def _hurt(compose: Compose, key: str) -> None:
    """Runs, pages and a session, while a server and a machine die."""
    left = Caller(compose.origin, key).json("/api/account")["balance_usd"]
    whole = Cluster(cast("Database", None), [Door(compose, compose.port, key)], [])
    work, over = Work(whole, opened=Decimal(left)), asyncio.Event()
    session = asyncio.create_task(work.live(over))
    people = asyncio.gather(*map(work.job, RUNS), *map(work.page, range(PAGES)))
    await work.until(lambda: work.done > 2 or people.done())
    for service in ("server-2", "machine", "server-1"):
        name = compose.container(service)
        poses = len(work.heard)
        await asyncio.to_thread(compose.podman, "kill", "-s", "KILL", name)
        await asyncio.to_thread(compose.podman, "start", name)
        await work.until(lambda poses=poses: len(work.heard) > poses + 20)  # the session goes on
    await people
    over.set()
    await session
    if result := await wrongs(work):
        raise Wrong("\n".join(result))
    said(
        "killed: both servers, a machine",
        f"{len(RUNS)} runs, {PAGES} pages, {len(work.heard)} poses without a gap",
    )
    said("the books", f"{work.charged} USD charged", "ledger verified, nothing lost, nothing paid twice")


def space() -> None:
    """A folder of real Gradio, imported, built and run: by its test, whose minute CI does not have."""
    began = time.monotonic()
    for words in (["tools/gradios.py", "6"], ["-m", "pytest", "--spaces", "tests/unit/cli/test_spaces.py"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=lock.ROOT, capture_output=True, text=True, check=False
        )
    if done.returncode or "1 passed" not in done.stdout:
        raise Wrong(f"a space in a container:\n{done.stdout[-2000:]}{done.stderr[-500:]}")
    said("a space of Gradio 6, a container", f"built, run, gone in {time.monotonic() - began:.0f} s")


def main() -> int:
    """Read what is wanted, and do it."""
    parser = argparse.ArgumentParser(
        prog="images", description="Build and try what deploy/ puts into containers."
    )
    folder = Path(tempfile.gettempdir()) / "sixfold-images"
    parser.add_argument(
        "--folder", type=Path, default=folder, help=f"where images are kept (default: {folder})"
    )
    parser.add_argument("--real", action="store_true", help="take the images of others from their registry")
    parser.add_argument("--only", choices=["server", "cluster", "space"], help="one part of it")
    parser.add_argument("--built", action="store_true", help="take the cluster's image as it is")
    inputs = parser.parse_args()
    podman = Podman(inputs.folder)
    try:
        if not inputs.real and not inputs.built and inputs.only != "space":
            stand_ins(podman)
        if inputs.only in (None, "server"):
            one_server(podman)
        if inputs.only in (None, "cluster"):
            asyncio.run(cluster(podman, inputs.built))
        if inputs.only in (None, "space"):
            space()
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
