"""Build the image, and test it alone, as a cluster of the compose file, and with a Gradio space.

The tests include restarts and crashes.

    make images                       with local third-party images: see deploy/check/Dockerfile
    make images ARGS="--real"         with the third-party images from their registry
    make images ARGS="--only server"  one server alone, or `cluster`, or `space`

It needs root, and podman, runc, netavark, aardvark-dns and debootstrap of Debian; podman-compose is
installed into a separate environment. Images stay in --folder, which makes the next run faster.
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
MACHINES = ("/etc/ssl/certs", "/etc/pip.conf")  # files that a machine may need to reach its package index
RESTRICTIONS = ["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
RUNS, PAGES = range(12), 6
PREVIEWS = "SIXFOLD_PREVIEWS: allow"
READY_SECONDS = 240.0


class CheckFailed(Exception):
    """Raised if a check of the image or the cluster failed."""


class RequestFailed(CheckFailed, OSError):
    """Raised for a response with an error status."""


@dataclass
class Podman:
    """Podman with its images, containers and volumes in one folder."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "containers.conf").write_text(CONFIGURATION)
        self.environ = {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}
        places = f"--root {self.folder}/store --runroot {self.folder}/run"
        self.program = self.folder / "podman"  # podman-compose accepts only the path of one program
        self.program.write_text(f'#!/bin/sh\nexec podman {places} "$@"\n')
        self.program.chmod(0o755)

    def __call__(self, *words: str, fails: bool = False) -> str:
        """Run a command and return its output; the command must fail if `fails` is true, else succeed."""
        process = subprocess.run(
            [self.program, *words], env=self.environ, capture_output=True, text=True, check=False
        )
        if bool(process.returncode) != fails:
            response = f"{process.stdout}\n{process.stderr}".strip()[-2000:]
            raise CheckFailed(f"podman {' '.join(words)[:200]}: status {process.returncode}\n{response}")
        return process.stdout.strip()

    def build(self, file: str, tag: str, *words: str) -> float:
        """Build an image; return the duration in seconds."""
        began = time.monotonic()
        shared = [word for path in MACHINES if Path(path).exists() for word in ("-v", f"{path}:{path}:ro")]
        here = ["--format", "docker", "--network", "host", *shared, "-f", str(lock.ROOT / file), "-t", tag]
        self("build", *here, *words, str(lock.ROOT))
        return time.monotonic() - began

    def megabytes(self, image: str) -> float:
        """Return the size of an image with all its layers in megabytes."""
        return int(self("image", "inspect", "--format", "{{.Size}}", image)) / sizes.MEGABYTE


def stand_ins(podman: Podman) -> None:
    """Build local images from Debian packages, under the names of the third-party images in deploy/."""
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


def report(label: str, *figures: str) -> None:
    """Print one line of the report."""
    print(f"{label:34} {', '.join(figures)}", flush=True)


def wait_until(ready: Callable[[], bool], event: str) -> float:
    """Wait until `ready` returns true; return the duration in seconds."""
    began = time.monotonic()
    while time.monotonic() < began + READY_SECONDS:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ready():
                return time.monotonic() - began
        time.sleep(0.1)
    raise CheckFailed(f"timed out waiting for {event}: it must happen within {READY_SECONDS:.0f} s")


@dataclass
class ApiClient:
    """HTTP client of one server with an API key."""

    origin: str
    key: str = ""

    def __call__(self, path: str, body: Any = None, method: str | None = None) -> bytes:
        """Send a request and return the response's body; `body` is sent as JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.origin + path, data, headers, method=method)  # noqa: S310  # a server of this check
        try:
            with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310  # a server of this check
                return response.read()
        except urllib.error.HTTPError as error:
            raise RequestFailed(f"{path}: {error.code} {error.read().decode()[:500]}") from error

    def json(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Send a request and return the JSON of the response."""
        return json.loads(self(path, body, method))

    def ready(self) -> bool:
        """Return True if the server accepts requests."""
        return self("/readyz") is not None

    def vectorize(self) -> str:
        """Vectorize an image, with an engine that is not a preview; return a description."""
        model, inputs = JOBS[2]
        body = self.json("/api/containers/run", {"model": model, "input": inputs})
        svg = self(urlsplit(body["output"]["url"]).path)
        if b"<svg" not in svg:
            raise CheckFailed(f"the output is not SVG: {svg[:80]!r}")
        return f"{model}: {len(svg):,} bytes"

    def generate_image(self, seed: int, width: int = 640, height: int = 384) -> str:
        """Generate an image and check its size; return a description."""
        query = f"prompt=a+harbour&width={width}&height={height}&seed={seed}"
        image = Image.open(io.BytesIO(self(f"/create_image?{query}")))
        image.load()
        if image.size != (width, height):
            raise CheckFailed(f"the image must be {width}×{height} (got {image.size})")
        return f"{image.width}×{image.height} {image.format}"


def one_server(podman: Podman) -> None:
    """Test the image as a single server: start, requests, backup, drain and restart."""
    seconds = podman.build("deploy/Dockerfile", "sixfold")
    total, base = podman.megabytes("sixfold"), podman.megabytes(BASE)
    report(
        "image", f"{total:.0f} MB, {total - base:.0f} MB of it above the base", f"built in {seconds:.0f} s"
    )
    data = f"data-{secrets.token_hex(4)}"
    options = [*RESTRICTIONS, "-v", f"{data}:/srv/sixfold"]
    podman("run", "--rm", *options, "sixfold", fails=True)
    report("without an account and an origin", "refused to start")
    output = podman(
        "run", "--rm", *options, "sixfold", "account", "create", "you@example.com", "--credit", "10", "--json"
    )
    port = free_port()
    client = ApiClient(f"http://127.0.0.1:{port}", json.loads(output)["api_key"])
    port_options = [
        "-p",
        f"127.0.0.1:{port}:8600",
        "-e",
        f"SIXFOLD_PUBLIC_URL={client.origin}",
        "-e",
        "SIXFOLD_PREVIEWS=allow",
    ]
    podman("run", "-d", "--name", data, *options, *port_options, "sixfold")
    try:
        report("read-only, no capabilities", f"ready in {wait_until(client.ready, 'ready'):.1f} s")
        _check_container(podman, data)
        report("image", client.generate_image(1))
        url = client.json("/api/containers/run", {"model": "piano", "input": {"bars": 4, "seed": 1}})[
            "output"
        ]["url"]
        client("/api/pages", {"slug": "kept", "title": "Kept", "body": "Written before the stop."})
        _check_backup(podman, data)
        drained = f"/api/containers/predictions/{_drain(podman, data, client)}"
        podman("start", data)
        wait_until(client.ready, "ready again")
        wait_until(lambda: client.json(drained)["status"] == "succeeded", "the end of the run")
        remaining = (len(client(url.removeprefix(client.origin))), client.json("/api/pages/kept")["body"])
        if not remaining[0] or "before the stop" not in remaining[1]:
            raise CheckFailed(f"the sound and the page must exist after a restart (got {remaining})")
        report("started again", "page, sound and account exist", _verify_ledger(podman, data))
    finally:
        podman("rm", "-f", data)
        podman("volume", "rm", data)


def _check_container(podman: Podman, name: str) -> None:
    user = podman("exec", name, "id", "-u")
    podman("exec", name, "touch", "/opt/sixfold/touched", fails=True)
    podman("healthcheck", "run", name)
    report("inside", f"user {user}", "read-only root", "healthy by HEALTHCHECK")


def _verify_ledger(podman: Podman, name: str) -> str:
    return podman("exec", name, "sixfold", "ledger", "verify").splitlines()[-1].strip()


def _check_backup(podman: Podman, name: str) -> None:
    podman("exec", name, "sixfold", "backup", "/srv/sixfold/all.tar")
    words = ["-v", f"{name}:/from:ro", "-v", f"{name}-copy:/srv/sixfold", *RESTRICTIONS]
    response = podman("run", "--rm", *words, "sixfold", "restore", "/from/all.tar", "--verify")
    podman("volume", "rm", f"{name}-copy")
    report("backup, restored elsewhere", response.rpartition("verified")[2].strip())


def _drain(podman: Podman, name: str, client: ApiClient) -> str:
    """Send SIGTERM during a run, check that the waiting request returns the run, and return the run's id."""
    messages: list[Any] = []
    body = {"model": "ra2", "input": {"prompt": "a harbour", "width": 2048, "height": 2048}, "wait": 60}
    thread = threading.Thread(target=lambda: messages.append(client.json("/api/containers/run", body)))
    thread.start()
    path = "/api/containers/predictions?limit=1"
    wait_until(lambda: client.json(path)["predictions"][0]["status"] == "running", "a run")
    began = time.monotonic()
    podman("stop", "-t", "45", name)
    thread.join()
    status = podman("inspect", "--format", "{{.State.ExitCode}}", name)
    if status != "0" or not messages:
        raise CheckFailed(f"SIGTERM: status must be 0 with one response (got {status}, {messages})")
    seconds = time.monotonic() - began
    report("SIGTERM during a run", f"response {messages[0]['status']}", f"status 0 in {seconds:.1f} s")
    return str(messages[0]["id"])


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class ProxyServer(Server):
    """The proxy in front of all servers; commands run inside the first server."""

    def __init__(self, compose: Compose, port: int, key: str) -> None:
        self.compose, self.port, self._key = compose, port, key

    @property
    def key(self) -> str:
        return self._key

    async def command(self, *arguments: str, **environ: str) -> tuple[int, str]:
        """Run an administration command, which must succeed; return the status 0 and the output."""
        response = await asyncio.to_thread(self.compose, "exec", "-T", "server-1", "sixfold", *arguments)
        return 0, response


def podman_compose(folder: Path) -> Path:
    """Install podman-compose into an environment in `folder`, if it is missing; return its path."""
    program = folder / "tools" / "bin" / "podman-compose"
    if not program.exists():
        venv.create(folder / "tools", with_pip=True)
        subprocess.run([program.with_name("pip"), "install", "-q", "podman-compose"], check=True)
    return program


def run_compose(podman: Podman, folder: Path, name: str, *words: str) -> str:
    """Run podman-compose in `folder` as the project `name`, and return its output."""
    program = [podman_compose(podman.folder), "--podman-path", podman.program, "-p", name]
    process = subprocess.run(
        [*program, *words], cwd=folder, env=podman.environ, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise CheckFailed(
            f"compose {' '.join(words)}: status {process.returncode}\n"
            f"{process.stdout[-1500:]}\n{process.stderr[-1500:]}"
        )
    return process.stdout.strip()


@dataclass
class Compose:
    """A copy of the compose file in a separate folder, with its secrets."""

    podman: Podman
    port: int

    def __post_init__(self) -> None:
        self.name = f"check{secrets.token_hex(3)}"
        self.folder = self.podman.folder / self.name
        shutil.copytree(lock.ROOT / "deploy" / "compose", self.folder)
        file = self.folder / "compose.yaml"  # the engine of the session is a preview
        file.write_text(
            file.read_text().replace("SIXFOLD_PUBLIC_URL:", f"{PREVIEWS}\n    SIXFOLD_PUBLIC_URL:")
        )
        words = {"DATABASE_PASSWORD": secrets.token_hex(16), "STORE_PASSWORD": secrets.token_hex(16)}
        words |= {"PORT": str(self.port), "PUBLIC_URL": self.origin}
        (self.folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in words.items()))
        (self.folder / "server.key").write_bytes(secrets.token_bytes(32))
        os.chown(self.folder / "server.key", 10001, 10001)

    @property
    def origin(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def __call__(self, *words: str) -> str:
        """Run podman-compose and return its output."""
        return run_compose(self.podman, self.folder, self.name, *words)

    def container(self, service: str, number: int = 1) -> str:
        return f"{self.name}_{service}_{number}"

    def keep_logs(self) -> Path:
        """Write the logs of all containers into a folder, and return the folder's path."""
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
        """Return the names of all containers of the cluster."""
        return self.podman("ps", "-a", "--filter", f"name={self.name}", "--format", "{{.Names}}").split()

    def healthy(self, service: str) -> bool:
        """Return whether a container's HEALTHCHECK passes; podman does not run it without systemd."""
        with contextlib.suppress(CheckFailed):
            return self.podman("healthcheck", "run", self.container(service)) is not None
        return False


async def cluster(podman: Podman, reuse_image: bool) -> None:
    """Test the compose file: start it as documented, use it through the proxy, crash parts and stop it."""
    if not reuse_image:
        podman.build("deploy/Dockerfile", "sixfold", "--build-arg", "EXTRAS=embedded,postgres,objects,ray")
    report("image with Ray", f"{podman.megabytes('sixfold'):.0f} MB")
    compose = Compose(podman, free_port())
    try:
        compose("up", "-d", "--no-build", "database", "store")
        for service in ("database", "store"):
            wait_until(lambda service=service: compose.healthy(service), service)
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
        client = ApiClient(compose.origin, key)
        report(
            "through the proxy", f"ready in {wait_until(client.ready, 'a server'):.1f} s", client.vectorize()
        )
        wait_until(lambda: compose.healthy("head"), "the head")
        await _crash_parts(compose, key)
        report("stopped", *_stop(compose))
    except CheckFailed:
        report("logs of the containers", str(compose.keep_logs()))
        raise
    finally:
        with contextlib.suppress(CheckFailed):
            compose("down", "-v", "-t", "5")
        shutil.rmtree(compose.folder, ignore_errors=True)


def _stop(compose: Compose) -> list[str]:
    """Stop the cluster; return lines with the duration and the seconds until the end of each container."""
    began, clock = time.monotonic(), time.time()
    compose("stop", "-t", "45")
    seconds = time.monotonic() - began
    end_times = {
        name: float(compose.podman("inspect", "--format", "{{.State.FinishedAt.UnixMilli}}", name)) / 1000
        for name in compose.containers()
    }
    parts = [f"{name.removeprefix(compose.name)[1:]} {end - clock:.1f}" for name, end in end_times.items()]
    return [f"in {seconds:.1f} s", *sorted(parts)]


async def _crash_parts(compose: Compose, key: str) -> None:
    """Run jobs, page edits and a session while both servers and a machine crash."""
    balance = ApiClient(compose.origin, key).json("/api/account")["balance_usd"]
    target = Cluster(cast("Database", None), [], [ProxyServer(compose, compose.port, key)])
    work, over = Work(target, initial_balance=Decimal(balance)), asyncio.Event()
    session = asyncio.create_task(work.live(over))
    work_tasks = asyncio.gather(*map(work.job, RUNS), *map(work.page, range(PAGES)))
    await work.until(lambda: work.request_count > 2 or work_tasks.done())
    for service in ("server-2", "machine", "server-1"):
        name = compose.container(service)
        poses = len(work.pose_numbers)
        await asyncio.to_thread(compose.podman, "kill", "-s", "KILL", name)
        await asyncio.to_thread(compose.podman, "start", name)
        await work.until(lambda poses=poses: len(work.pose_numbers) > poses + 20)  # the session continues
    await work_tasks
    over.set()
    await session
    if result := await wrongs(work):
        raise CheckFailed("\n".join(result))
    report(
        "killed: both servers, a machine",
        f"{len(RUNS)} runs, {PAGES} pages, {len(work.pose_numbers)} poses without a gap",
    )
    report("ledger", f"{work.charged} USD charged", "verified, no lost data, no double charge")


def space() -> None:
    """Import, build and run a Gradio folder with its test, which is too slow for CI."""
    began = time.monotonic()
    for words in (["tools/gradios.py", "6"], ["-m", "pytest", "--spaces", "tests/unit/cli/test_spaces.py"]):
        process = subprocess.run(
            [sys.executable, *words], cwd=lock.ROOT, capture_output=True, text=True, check=False
        )
    if process.returncode or "1 passed" not in process.stdout:
        raise CheckFailed(f"a space in a container:\n{process.stdout[-2000:]}{process.stderr[-500:]}")
    report("a Gradio 6 space in a container", f"built, run and removed in {time.monotonic() - began:.0f} s")


def main() -> int:
    """Parse the command line and run the checks; return the exit status."""
    parser = argparse.ArgumentParser(prog="images", description="Build and test the containers of deploy/.")
    folder = Path(tempfile.gettempdir()) / "sixfold-images"
    parser.add_argument(
        "--folder", type=Path, default=folder, help=f"folder of the images (default: {folder})"
    )
    parser.add_argument("--real", action="store_true", help="take third-party images from their registry")
    parser.add_argument("--only", choices=["server", "cluster", "space"], help="run one part alone")
    parser.add_argument("--built", action="store_true", help="use the existing image of the cluster")
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
    except CheckFailed as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
