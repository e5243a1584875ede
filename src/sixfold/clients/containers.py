"""Client of the Docker Engine API over its Unix socket, which Podman implements as well.

Source: https://docs.docker.com/reference/api/engine/version/v1.41/ (Podman 4 and 5 support the same).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from sixfold.clients import cog, provider_client

SOCKETS = (Path("/var/run/docker.sock"), Path("/run/podman/podman.sock"))
LABEL = "sixfold.owner"
_CALL_SECONDS = 60.0
_PULL_SECONDS, _BUILD_SECONDS = 3600.0, 900.0
_FRAME_HEADER_BYTES = 8


class ContainersFailed(Exception):
    """Docker or Podman failed or rejected a request; the text is its reason."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to start; 0 means no limit.

    The root is read-only and `/tmp` is in memory. Without `network`, the container is in an internal network
    of its own. `folders` are mounted read-only, by path in the container; `gpus` gives it all GPUs. `port` is
    the port that it listens on.
    """

    image: str
    memory_bytes: int = 0
    cpus: float = 0.0
    temporary_bytes: int = 2**30
    network: bool = False
    gpus: bool = False
    port: int = cog.PORT
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])


def find_socket(wanted: Path | None = None) -> Path | None:
    """Return the given socket, else the first of the usual ones; None if it does not exist."""
    return next((path for path in ((wanted,) if wanted else SOCKETS) if path.is_socket()), None)


class DockerClient:
    """The engine at a socket; containers are labeled with `owner`, so that a later start can remove them."""

    def __init__(self, socket: Path, owner: str) -> None:
        self._owner = owner
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket)),
            base_url="http://containers/v1.41",
            timeout=_CALL_SECONDS,
        )

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.aclose()

    async def image_id(self, image: str) -> str:
        """Return the content id of an image, pulling it if needed; raises `ContainersFailed`."""
        found = await self._call("GET", f"/images/{quote(image)}/json", missing_is_none=True)
        if found is None:
            query = (
                {"fromImage": image}
                if ":" in image.rpartition("/")[2]
                else {"fromImage": image, "tag": "latest"}
            )
            await self._call("POST", "/images/create", params=query, timeout=_PULL_SECONDS)
            found = await self._call("GET", f"/images/{quote(image)}/json")
        return str(provider_client.mapping(found).get("Id") or "").removeprefix("sha256:")

    async def has(self, image: str) -> bool:
        """Return whether an image is present; raises `ContainersFailed`."""
        return await self._call("GET", f"/images/{quote(image)}/json", missing_is_none=True) is not None

    async def build(self, image: str, context: bytes) -> None:
        """Build an image from a tar archive with a `Dockerfile`; raises `ContainersFailed`."""
        try:
            answer = await self._client.post(
                "/build",
                params={"t": image, "rm": "true", "forcerm": "true"},
                content=context,
                headers={"Content-Type": "application/x-tar"},
                timeout=_BUILD_SECONDS,
            )
        except httpx.HTTPError as error:
            raise ContainersFailed(f"Docker or Podman does not answer: {error}") from error
        if answer.is_error:
            raise ContainersFailed(_said(answer))
        if said := _build_fault(answer.text):
            raise ContainersFailed(said)

    async def start(self, name: str, wanted: ContainerSpec) -> RunningContainer:
        """Start a container; raises `ContainersFailed` and then leaves nothing behind."""
        box = RunningContainer(self, name, "" if wanted.network else name)
        try:
            if box.network:
                about: dict[str, Any] = {"Name": name, "Internal": True, "Labels": {LABEL: self._owner}}
                await self._call("POST", "/networks/create", json=about)
            document = self._document(wanted, box.network or "bridge")
            await self._call("POST", "/containers/create", params={"name": name}, json=document)
            await self._call("POST", f"/containers/{name}/start")
            return box.at(f"http://{await self._address(name)}:{wanted.port}")
        except BaseException:
            await box.remove()
            raise

    async def tidy(self) -> int:
        """Remove the containers and networks of earlier servers of this owner; return the number of
        containers.
        """
        filters = f'{{"label":["{LABEL}={self._owner}"]}}'
        query = {"all": "true", "filters": filters}
        left = provider_client.texts(await self._call("GET", "/containers/json", params=query))
        for one in left:
            await self.remove(str(one.get("Id")))
        for one in provider_client.texts(await self._call("GET", "/networks", params={"filters": filters})):
            await self._call("DELETE", f"/networks/{one.get('Name')}", missing_is_none=True)
        return len(left)

    async def wait(self, name: str) -> str:
        """Wait for a container's end and return how it ended."""
        with contextlib.suppress(ContainersFailed):
            await self._call("POST", f"/containers/{name}/wait", timeout=None)
            state = provider_client.mapping(
                provider_client.mapping(await self._call("GET", f"/containers/{name}/json")).get("State")
            )
            if state.get("OOMKilled"):
                return "ran out of memory"
            return f"exited with status {state.get('ExitCode')}"
        return "was removed"

    async def log(self, name: str, lines: int = 20) -> str:
        """Return the last lines that a container printed; empty if it is gone."""
        query = {"stdout": "1", "stderr": "1", "tail": str(lines)}
        with contextlib.suppress(httpx.HTTPError):
            answer = await self._client.get(f"/containers/{name}/logs", params=query)
            if answer.is_success:
                return _unframed(answer.content).decode(errors="replace").strip()
        return ""

    async def remove(self, name: str) -> None:
        """Kill and remove a container; one that is gone is ignored."""
        # It may have ended. Without the kill, Podman waits before it removes the container.
        with contextlib.suppress(ContainersFailed):
            await self._call("POST", f"/containers/{name}/kill", missing_is_none=True)
        await self._call(
            "DELETE", f"/containers/{name}", params={"force": "true", "v": "true"}, missing_is_none=True
        )

    async def remove_network(self, name: str) -> None:
        """Remove a network; one that is gone is ignored."""
        await self._call("DELETE", f"/networks/{name}", missing_is_none=True)

    async def _address(self, name: str) -> str:
        found = provider_client.mapping(await self._call("GET", f"/containers/{name}/json"))
        networks = provider_client.mapping(
            provider_client.mapping(found.get("NetworkSettings")).get("Networks")
        )
        for network in networks.values():
            if address := provider_client.mapping(network).get("IPAddress"):
                return str(address)
        raise ContainersFailed("the container has no address; rootless Podman gives none that can be reached")

    def _document(self, wanted: ContainerSpec, network: str) -> dict[str, Any]:
        host: dict[str, Any] = {
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": f"rw,exec,size={wanted.temporary_bytes}"},  # noqa: S108 - the container's own
            "Memory": wanted.memory_bytes,
            "MemorySwap": wanted.memory_bytes,
            "NanoCpus": round(wanted.cpus * 1e9),
            "PidsLimit": 1024,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "NetworkMode": network,
            "Binds": [f"{path}:{there}:ro" for there, path in wanted.folders.items()],
        }
        if wanted.gpus:
            host["DeviceRequests"] = [{"Count": -1, "Capabilities": [["gpu"]]}]
        environment = {"HOME": "/tmp", "XDG_CACHE_HOME": "/tmp/.cache", **wanted.environment}  # noqa: S108 - the same
        return {
            "Image": wanted.image,
            "Env": [f"{key}={value}" for key, value in environment.items()],
            "Labels": {LABEL: self._owner},
            "HostConfig": host,
        }

    async def _call(self, method: str, path: str, *, missing_is_none: bool = False, **arguments: Any) -> Any:
        try:
            answer = await self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise ContainersFailed(f"Docker or Podman does not answer: {error}") from error
        if answer.status_code == 404 and missing_is_none:
            return None
        if answer.is_error:
            raise ContainersFailed(_said(answer))
        try:
            return answer.json()
        except ValueError:
            # An empty body, or the progress of a pull.
            return None


class RunningContainer:
    """A running container and its own network."""

    def __init__(self, containers: DockerClient, name: str, network: str) -> None:
        self.name = name
        self.network = network
        self.address = ""
        self._containers = containers

    def at(self, address: str) -> RunningContainer:
        """Set the URL by which this machine reaches it, and return itself."""
        self.address = address
        return self

    async def ended(self) -> str:
        """Wait for its end and return how it ended."""
        return await self._containers.wait(self.name)

    async def log(self) -> str:
        """Return the last lines that it printed."""
        return await self._containers.log(self.name)

    async def remove(self) -> None:
        """Kill it and remove its network. Idempotent."""
        with contextlib.suppress(ContainersFailed):
            await self._containers.remove(self.name)
        if self.network:
            with contextlib.suppress(ContainersFailed):
                await self._containers.remove_network(self.network)


def _said(answer: httpx.Response) -> str:
    try:
        found = provider_client.mapping(answer.json())
    except ValueError:
        found = {}
    return str(found.get("message") or found.get("cause") or f"status {answer.status_code}")[:500]


def _build_fault(story: str) -> str:
    """Return why a build failed, from its output lines; empty if it succeeded."""
    told: list[str] = []
    for line in story.splitlines():
        with contextlib.suppress(ValueError):
            found = provider_client.mapping(json.loads(line))
            told.append(str(found.get("stream") or ""))
            if fault := found.get("error"):
                return f"{fault}\n{''.join(told)[-1000:]}".strip()
    return ""


def _unframed(data: bytes) -> bytes:
    """Return the output without the eight-byte header of each chunk."""
    pieces: list[bytes] = []
    place = 0
    while place + _FRAME_HEADER_BYTES <= len(data):
        length = int.from_bytes(data[place + 4 : place + _FRAME_HEADER_BYTES], "big")
        place += _FRAME_HEADER_BYTES
        pieces.append(data[place : place + length])
        place += length
    return b"".join(pieces)
