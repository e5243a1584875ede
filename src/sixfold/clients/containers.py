"""Client of the Docker Engine API over its Unix socket, which Podman implements as well.

Source: https://docs.docker.com/reference/api/engine/version/v1.41/ (Podman 4 and 5 support the same).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from sixfold.clients import cog, provider_client
from sixfold.net import limited_responses

SOCKETS = (Path("/var/run/docker.sock"), Path("/run/podman/podman.sock"))
LABEL = "sixfold.owner"
_CALL_SECONDS = 60.0
_PULL_SECONDS, _BUILD_SECONDS = 3600.0, 900.0
_FRAME_HEADER_BYTES = 8
_MAX_LOG_BYTES = 256 * 1024
# Without a limit, the output of a container fills the disk of the machine.
_LOG_CONFIG = {"Type": "json-file", "Config": {"max-size": "8m", "max-file": "1"}}
# Of an error of a build, and of its output before the error.
_MAX_BUILD_CHARS = 1000


class ContainersFailed(Exception):
    """Raised if Docker or Podman fails or rejects a request; the message is its reason."""


class ContainerSpec(msgspec.Struct, frozen=True):
    """A container to start; a limit of 0 is unlimited.

    The root is read-only, and `/tmp` and the volumes of the image are in memory, with `temporary_bytes` each.
    Without `network`, the container is in an internal network of its own. `folders` are mounted read-only, by
    path in the container; `gpus` makes all GPUs available. The server in it listens on `port`.
    """

    image: str
    memory_bytes: int = 0
    cpus: float = 0.0
    temporary_bytes: int = 2**30
    network: bool = False
    gpus: bool = False
    port: int = cog.PORT
    environment: Mapping[str, str] = {}
    folders: Mapping[str, Path] = {}


def find_socket(path: Path | None = None) -> Path | None:
    """Return `path`, or the first of the usual sockets if it is None; None if no socket exists there."""
    return next((candidate for candidate in ((path,) if path else SOCKETS) if candidate.is_socket()), None)


class DockerClient:
    """A client of the Docker daemon at a socket.

    Containers are labeled with `owner`, so that a later start can remove them.
    """

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
        details = await self._call("GET", f"/images/{quote(image)}/json", missing_is_none=True)
        if details is None:
            query = (
                {"fromImage": image}
                if ":" in image.rpartition("/")[2]
                else {"fromImage": image, "tag": "latest"}
            )
            await self._call("POST", "/images/create", params=query, timeout=_PULL_SECONDS)
            details = await self._call("GET", f"/images/{quote(image)}/json")
        return str(provider_client.mapping(details).get("Id") or "").removeprefix("sha256:")

    async def has(self, image: str) -> bool:
        return await self._call("GET", f"/images/{quote(image)}/json", missing_is_none=True) is not None

    async def build(self, image: str, context: bytes) -> None:
        """Build an image from a tar archive with a `Dockerfile`; raises `ContainersFailed`."""
        parameters = {"t": image, "rm": "true", "forcerm": "true"}
        headers = {"Content-Type": "application/x-tar", **limited_responses.IDENTITY}
        output = _BuildOutput()
        try:
            async with (
                asyncio.timeout(_BUILD_SECONDS),
                self._client.stream(
                    "POST", "/build", params=parameters, content=context, headers=headers, timeout=None
                ) as response,
            ):
                if response.is_error:
                    await response.aread()
                    raise ContainersFailed(_error_message(response))
                async for chunk in limited_responses.chunks(response):
                    output.add(chunk)
        except TimeoutError as error:
            raise ContainersFailed(f"The image was not built within {_BUILD_SECONDS:g} seconds") from error
        except httpx.HTTPError as error:
            raise ContainersFailed(f"Docker or Podman does not respond: {error}") from error
        output.add(b"\n")
        if output.reason:
            raise ContainersFailed(output.reason)

    async def start(self, name: str, spec: ContainerSpec) -> RunningContainer:
        """Start a container; if that fails, remove its parts and raise `ContainersFailed`."""
        container = RunningContainer(self, name, "" if spec.network else name)
        try:
            if container.network:
                network: dict[str, Any] = {"Name": name, "Internal": True, "Labels": {LABEL: self._owner}}
                await self._call("POST", "/networks/create", json=network)
            document = self._document(spec, container.network or "bridge", await self._volumes(spec.image))
            await self._call("POST", "/containers/create", params={"name": name}, json=document)
            await self._call("POST", f"/containers/{name}/start")
            return container.at(f"http://{await self._address(name)}:{spec.port}")
        except BaseException:
            await container.remove()
            raise

    async def tidy(self) -> int:
        """Remove the containers and networks that earlier servers of this owner left.

        Return the number of containers.
        """
        filters = f'{{"label":["{LABEL}={self._owner}"]}}'
        query = {"all": "true", "filters": filters}
        containers = provider_client.objects(await self._call("GET", "/containers/json", params=query))
        for row in containers:
            await self.remove(str(row.get("Id")))
        for row in provider_client.objects(await self._call("GET", "/networks", params={"filters": filters})):
            await self._call("DELETE", f"/networks/{row.get('Name')}", missing_is_none=True)
        return len(containers)

    async def wait(self, name: str) -> str:
        """Wait until a container has ended and return a description of its end."""
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
        """Return the last lines of a container's output, or an empty string if it does not exist.

        Of long lines, the first `_MAX_LOG_BYTES` in total are returned.
        """
        query = {"stdout": "1", "stderr": "1", "tail": str(lines)}
        path, headers = f"/containers/{name}/logs", limited_responses.IDENTITY
        data = bytearray()
        with contextlib.suppress(httpx.HTTPError, TimeoutError):
            async with (
                asyncio.timeout(_CALL_SECONDS),
                self._client.stream("GET", path, params=query, headers=headers) as response,
            ):
                if response.is_success:
                    async for chunk in limited_responses.chunks(response):
                        data += chunk
                        if len(data) >= _MAX_LOG_BYTES:
                            break
        return _strip_headers(bytes(data[:_MAX_LOG_BYTES])).decode(errors="replace").strip()

    async def remove(self, name: str) -> None:
        """Kill and remove a container, if it exists."""
        # The container may have ended already. Podman waits before it removes a running one.
        with contextlib.suppress(ContainersFailed):
            await self._call("POST", f"/containers/{name}/kill", missing_is_none=True)
        await self._call(
            "DELETE", f"/containers/{name}", params={"force": "true", "v": "true"}, missing_is_none=True
        )

    async def remove_network(self, name: str) -> None:
        """Remove a network, if it exists."""
        await self._call("DELETE", f"/networks/{name}", missing_is_none=True)

    async def _address(self, name: str) -> str:
        details = provider_client.mapping(await self._call("GET", f"/containers/{name}/json"))
        networks = provider_client.mapping(
            provider_client.mapping(details.get("NetworkSettings")).get("Networks")
        )
        for network in networks.values():
            if address := provider_client.mapping(network).get("IPAddress"):
                return str(address)
        raise ContainersFailed(
            "the container does not have an IP address; rootless Podman does not assign one that is reachable"
        )

    async def _volumes(self, image: str) -> list[str]:
        """Return the paths of an image's volumes, which would be folders on this machine's disk."""
        details = provider_client.mapping(await self._call("GET", f"/images/{quote(image)}/json"))
        return list(provider_client.mapping(provider_client.mapping(details.get("Config")).get("Volumes")))

    def _document(self, spec: ContainerSpec, network: str, volumes: Sequence[str]) -> dict[str, Any]:
        in_memory = {"/tmp", *volumes} - spec.folders.keys()  # noqa: S108 - the container's own
        host_config: dict[str, Any] = {
            "ReadonlyRootfs": True,
            "Tmpfs": dict.fromkeys(sorted(in_memory), f"rw,exec,size={spec.temporary_bytes}"),
            "Memory": spec.memory_bytes,
            "MemorySwap": spec.memory_bytes,
            "NanoCpus": round(spec.cpus * 1e9),
            "PidsLimit": 1024,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "NetworkMode": network,
            "LogConfig": _LOG_CONFIG,
            "Binds": [f"{path}:{mount_point}:ro" for mount_point, path in spec.folders.items()],
        }
        if spec.gpus:
            host_config["DeviceRequests"] = [{"Count": -1, "Capabilities": [["gpu"]]}]
        environment = {"HOME": "/tmp", "XDG_CACHE_HOME": "/tmp/.cache", **spec.environment}  # noqa: S108 - the same
        return {
            "Image": spec.image,
            "Env": [f"{key}={value}" for key, value in environment.items()],
            "Labels": {LABEL: self._owner},
            "HostConfig": host_config,
        }

    async def _call(self, method: str, path: str, *, missing_is_none: bool = False, **arguments: Any) -> Any:
        try:
            response = await self._client.request(method, path, **arguments)
        except httpx.HTTPError as error:
            raise ContainersFailed(f"Docker or Podman does not respond: {error}") from error
        if response.status_code == 404 and missing_is_none:
            return None
        if response.is_error:
            raise ContainersFailed(_error_message(response))
        try:
            return response.json()
        except ValueError:
            # The body is empty or contains the progress of a pull.
            return None


class RunningContainer:
    """A running container and its network, if it is isolated."""

    def __init__(self, containers: DockerClient, name: str, network: str) -> None:
        self.name = name
        self.network = network
        self.address = ""
        self._containers = containers

    def at(self, address: str) -> RunningContainer:
        """Set the URL of the container for this machine, and return this object."""
        self.address = address
        return self

    async def wait(self) -> str:
        return await self._containers.wait(self.name)

    async def log(self) -> str:
        """Return the last lines of the container's output."""
        return await self._containers.log(self.name)

    async def remove(self) -> None:
        """Kill the container and remove its network. Idempotent."""
        with contextlib.suppress(ContainersFailed):
            await self._containers.remove(self.name)
        if self.network:
            with contextlib.suppress(ContainersFailed):
                await self._containers.remove_network(self.network)


def _error_message(response: httpx.Response) -> str:
    try:
        error = provider_client.mapping(response.json())
    except ValueError:
        error = {}
    return str(error.get("message") or error.get("cause") or f"status {response.status_code}")[:500]


class _BuildOutput:
    """The end of a build's output, which may have gigabytes, and the `reason` for its failure or ""."""

    def __init__(self) -> None:
        self.reason = ""
        self._tail = ""
        self._line = bytearray()

    def add(self, chunk: bytes) -> None:
        """Read the next bytes; the rest of a line over `_MAX_LOG_BYTES` is ignored."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._extend(line)
            self._read(bytes(self._line))
            self._line.clear()
        self._extend(rest)

    def _extend(self, data: bytes) -> None:
        self._line += data[: _MAX_LOG_BYTES - len(self._line)]

    def _read(self, line: bytes) -> None:
        try:
            entry = provider_client.mapping(json.loads(line))
        except (ValueError, RecursionError):
            return
        self._tail = (self._tail + provider_client.text_of(entry.get("stream")))[-_MAX_BUILD_CHARS:]
        error = provider_client.text_of(entry.get("error"))[:_MAX_BUILD_CHARS]
        if error and not self.reason:
            self.reason = f"{error}\n{self._tail}".strip()


def _strip_headers(data: bytes) -> bytes:
    """Return the output without the eight-byte header of each chunk."""
    chunks: list[bytes] = []
    offset = 0
    while offset + _FRAME_HEADER_BYTES <= len(data):
        length = int.from_bytes(data[offset + 4 : offset + _FRAME_HEADER_BYTES], "big")
        offset += _FRAME_HEADER_BYTES
        chunks.append(data[offset : offset + length])
        offset += length
    return b"".join(chunks)
