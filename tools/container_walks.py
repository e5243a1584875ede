"""Follow two sections of docs/howto/deploy.md in containers: the small compose file, and systemd.

    python -m tools.container_walks                 both
    python -m tools.container_walks --only systemd  one of them, or `compose`

The requirements and the folder are those of `make images`, which builds the image `sixfold` there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tools import lock, release
from tools.container_smoke_test import (
    BASE,
    MACHINES,
    ApiClient,
    CheckFailed,
    Podman,
    RequestFailed,
    free_port,
    report,
    run_compose,
    wait_until,
)

UNIT = "/etc/systemd/system/sixfold.service"
SYSTEM = f"""FROM {BASE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends systemd curl
CMD ["/lib/systemd/systemd"]
"""


def first_answers(client: ApiClient, result: str) -> list[str]:
    """Return `result`, which describes a first result, and a description of the first memory answer."""
    page = {"slug": "people/ann", "title": "Ann", "body": "Ann keeps the lighthouse."}
    client("/api/pages", page)
    answers = client.json("/api/search", {"query": "who keeps the lighthouse"})["results"]
    if not answers or answers[0]["slug"] != "people/ann":
        raise CheckFailed(f"the page must be found (got {answers})")
    return [result, f"memory: {answers[0]['slug']}"]


def compose(podman: Podman) -> None:
    """Follow 'Run a container next to Ollama and ComfyUI' with the compose file, without these programs."""
    folder = Path(tempfile.mkdtemp(dir=podman.folder))
    port, name = free_port(), f"small{secrets.token_hex(3)}"
    text = (lock.ROOT / "deploy" / "compose" / "small.yaml").read_text()
    # As the page says: Podman before 4.7 does not support `host-gateway`, and does not need the line.
    lines = [line for line in text.splitlines() if "extra_hosts" not in line]
    (folder / "small.yaml").write_text("\n".join(lines).replace("8600:8600", f"{port}:8600") + "\n")
    run = partial(run_compose, podman, folder, name, "-f", "small.yaml")
    began = time.monotonic()
    try:
        account = ["account", "create", "you@example.com", "--credit", "10", "--operator", "--json"]
        output = run("run", "--rm", "-T", "sixfold", *account)
        run("up", "-d", "--no-build")
        client = ApiClient(f"http://127.0.0.1:{port}", json.loads(output[output.index("{") :])["api_key"])
        ready = wait_until(client.ready, "ready")
        report(
            "small.yaml", f"ready in {ready:.1f} s", *first_answers(client, client.vectorize()), _since(began)
        )
    finally:
        with contextlib.suppress(CheckFailed):
            run("down", "-v", "-t", "5")
        shutil.rmtree(folder)


def systemd(podman: Podman) -> None:
    """Follow 'Run on one machine with systemd' in a container whose first process is systemd."""
    folder = Path(tempfile.mkdtemp(dir=podman.folder))
    name = f"systemd{secrets.token_hex(3)}"
    wheel = release.build_wheel(folder)
    (folder / "Dockerfile").write_text(SYSTEM)
    shutil.copy(lock.ROOT / "deploy" / "systemd" / "sixfold.service", folder)
    (folder / "pins.txt").write_text("\n".join(lock.pins()) + "\n")
    shared = [word for path in MACHINES if Path(path).exists() for word in ("-v", f"{path}:{path}:ro")]
    podman("build", "--network", "host", *shared, "-t", "sixfold-systemd", str(folder))
    words = [
        "--systemd=always",
        "--network",
        "host",
        "--cap-add=SYS_ADMIN",
        "--security-opt=seccomp=unconfined",
    ]
    podman("run", "-d", "--name", name, *words, *shared, "-v", f"{folder}:/dist:ro", "sixfold-systemd")

    def run(*command: str) -> str:
        return podman("exec", name, *command)

    port = free_port()
    try:
        wait_until(lambda: _running(podman, name), "systemd")
        began = time.monotonic()
        run("python3", "-m", "venv", "/opt/sixfold")
        run("/opt/sixfold/bin/pip", "install", "-q", "-c", "/dist/pins.txt", f"/dist/{wheel.name}[embedded]")
        run("cp", "/dist/sixfold.service", UNIT)
        run("sh", "-c", f"echo SIXFOLD_PORT={port} > /etc/sixfold.env")
        run("systemctl", "enable", "--now", "sixfold")
        client = ApiClient(f"http://127.0.0.1:{port}")
        ready = wait_until(client.ready, "ready")
        client.key = run("cat", "/var/lib/sixfold/local.key")
        report(
            "systemd",
            f"ready in {ready:.1f} s",
            *first_answers(client, client.generate_image(1)),
            _since(began),
        )
        run("systemctl", "kill", "--signal=KILL", "sixfold")
        wait_until(client.ready, "ready again")
        ledger = run("sh", "-c", "SIXFOLD_DATA_DIR=/var/lib/sixfold /opt/sixfold/bin/sixfold ledger verify")
        client("/api/pages/people/ann")
        report("systemd, after kill -9", "started again", ledger.splitlines()[-1].strip())
    except CheckFailed:
        with contextlib.suppress(CheckFailed):
            print(run("journalctl", "-u", "sixfold", "-n", "30", "--no-pager"), file=sys.stderr)
        raise
    finally:
        podman("rm", "-f", name)
        shutil.rmtree(folder)


def _running(podman: Podman, name: str) -> bool:
    """Return whether systemd accepts commands; the state `degraded` is usual in a container."""
    with contextlib.suppress(CheckFailed):
        return podman("exec", name, "systemctl", "show", "--property=Version") != ""
    return False


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.0f} s after the first command"


def main() -> int:
    """Parse the command line and follow the sections; return the exit status."""
    parser = argparse.ArgumentParser(prog="container_walks", description="Follow docs/howto/deploy.md.")
    folder = Path(tempfile.gettempdir()) / "sixfold-images"
    parser.add_argument(
        "--folder", type=Path, default=folder, help=f"folder of the images (default: {folder})"
    )
    parser.add_argument("--only", choices=["compose", "systemd"], help="follow one section alone")
    inputs = parser.parse_args()
    podman = Podman(inputs.folder)
    try:
        if inputs.only in (None, "compose"):
            compose(podman)
        if inputs.only in (None, "systemd"):
            systemd(podman)
    except (CheckFailed, RequestFailed) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
