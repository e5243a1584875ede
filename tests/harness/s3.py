"""S3 server for tests (moto): a separate process per test process, and buckets on it."""

from __future__ import annotations

import atexit
import functools
import http.client
import importlib.util
import itertools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sixfold import settings
from tests.harness import processes

_PACKAGES = ("obstore", "moto", "flask")
LACKING = next((f"{name} is not installed" for name in _PACKAGES if not importlib.util.find_spec(name)), "")
NEEDED = [pytest.mark.s3, pytest.mark.skipif(bool(LACKING), reason=LACKING)]
KEY, SECRET = "test-key", "test-secret"
_START_SECONDS = 60
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class S3:
    """Running S3 server."""

    port: int

    @property
    def endpoint(self) -> str:
        """Return the origin of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Return the settings of `[stores.s3]` for this server."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "region": "us-east-1",
        }

    def new_bucket(self) -> str:
        name = f"bucket{os.getpid()}x{next(_NUMBERS)}"
        self.request("PUT", f"/{name}")
        return name

    def request(self, method: str, path: str) -> bytes:
        """Send one unsigned request; this server does not check signatures."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read()
            assert response.status < 300, body
            return body
        finally:
            connection.close()


def environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables that point obstore at a server other than Amazon's."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


@functools.cache
def server() -> S3:
    """Return the server of this process, starting it on the first call; it stops with this process."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("s3_child.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=settings.worker_environment(),
    )
    atexit.register(processes.kill, child)
    assert child.stdout is not None
    return S3(int(child.stdout.readline()))
