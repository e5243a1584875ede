"""Construction of the worker drivers from the settings: processes, containers, Ray, and remote engines."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from sixfold import errors
from sixfold.app.gpu import GpuSharing
from sixfold.clients import bubblewrap, nvml
from sixfold.clients.gradio.spaces import GradioSpaces
from sixfold.core.accounts.connections import Connections
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.engines import EngineError
from sixfold.core.catalog.models import EngineSpec
from sixfold.core.catalog.templates import Templates
from sixfold.core.database import Database
from sixfold.core.failpoints import Failpoints
from sixfold.core.sessions.service import SessionCatalog, SessionService
from sixfold.core.workers import policy as worker_policy
from sixfold.core.workers.memory_budget import MemoryBudget
from sixfold.core.workers.ports import Driver
from sixfold.drivers import container as containers
from sixfold.drivers import process_memory, space_images
from sixfold.drivers.container import ContainerDriver
from sixfold.drivers.gpu_workers import GpuWorkerDriver
from sixfold.drivers.inline import InlineDriver
from sixfold.drivers.node_workers import NodeWorkers
from sixfold.drivers.process import ProcessDriver
from sixfold.drivers.remote import DriverSet, RemoteDriver, ServerServices
from sixfold.drivers.sandbox import SandboxDriver
from sixfold.drivers.space_images import HostedSpaces
from sixfold.drivers.spaces import SpaceDriver
from sixfold.engines.availability import EngineAvailability, Probe
from sixfold.settings import InvalidSetting, Settings


class ContainerInspector:
    """Implements `ImageInspector` with containers on this machine."""

    def __init__(self, containers_here: ContainerDriver, scratch: Path) -> None:
        self._containers = containers_here
        self._scratch = scratch

    async def inspect(self, image: str, hardware: str | None, name: str = "") -> Mapping[str, Any]:
        """Start the image once, read its schema, and remove the container."""
        if not self._containers.can_start:
            raise errors.EngineUnavailable(space_images.NO_CONTAINERS)
        try:
            return await self._containers.inspect(image, self._scratch, name=name, hardware=hardware)
        except EngineError as error:
            raise errors.BadRequest(str(error)) from error

    async def tidy(self) -> None:
        """Remove the containers that an earlier server left."""
        await self._containers.tidy()


class WorkerDrivers(msgspec.Struct, frozen=True):
    """The drivers of a server's workers, the worker policy, and the GPUs shared with other programs."""

    images: ContainerDriver
    driver: Driver
    policy: worker_policy.WorkerPolicy
    gpu: GpuSharing

    def register_probes(self, availability: EngineAvailability) -> None:
        availability.probes["container"] = _container_probe(self.images)
        availability.status_sources["sandbox"] = _sandbox_status

    def sessions(
        self, database: Database, catalog: SessionCatalog, boot: str, connections: Connections
    ) -> SessionService:
        return SessionService(database, self.driver, catalog, self.policy, boot, connections)


def build(
    settings: Settings, failpoints: Failpoints, services: ServerServices, templates: Templates
) -> WorkerDrivers:
    """Return the drivers of these settings; workers for remote engines are coroutines of the server."""
    images = _container_driver(settings, failpoints)
    local = local_driver(settings, failpoints, templates)
    other_drivers: list[Driver] = [
        images,
        SandboxDriver(failpoints=failpoints.engines),
        SpaceDriver(images, failpoints=failpoints.engines),
    ]
    if settings.driver != "inline":
        nodes = _node_workers(settings, local)
        services.open_nodes = nodes.open
        other_drivers.insert(0, nodes)
    gpu = GpuSharing(settings, services.client, services.comfyui)
    if isinstance(local, ProcessDriver):
        local = GpuWorkerDriver(local, gpu.weights, gpu.weights_access)
    kinds = DriverSet(local, RemoteDriver(services, failpoints=failpoints.engines), *other_drivers)
    return WorkerDrivers(images, kinds, policy(settings, templates), gpu)


def local_driver(settings: Settings, failpoints: Failpoints, templates: Templates) -> Driver:
    """Return the driver of workers on this machine or cluster."""
    if settings.driver == "inline":
        return InlineDriver(failpoints=failpoints.engines)
    if settings.driver == "ray":
        return _ray_driver(settings, failpoints, templates)
    return ProcessDriver(failpoints=failpoints.engines)


def _node_workers(settings: Settings, local: Driver) -> NodeWorkers:
    """Return the workers of workflow nodes, which always run on this machine, where their files are."""
    is_shared = isinstance(local, ProcessDriver)
    driver = local if is_shared else ProcessDriver()
    return NodeWorkers(driver, settings.scratch_dir, settings.worker_memory_bytes, owned=not is_shared)


def _container_driver(settings: Settings, failpoints: Failpoints) -> ContainerDriver:
    """Return the container driver, which looks for Docker or Podman when first used."""
    socket = Path(settings.container_socket) if settings.container_socket else None
    return ContainerDriver(
        lambda: containers.open_engine(socket, settings.data_dir, settings.process),
        failpoints=failpoints.engines,
        memory_bytes=settings.worker_memory_bytes,
    )


def _container_probe(containers_here: ContainerDriver) -> Probe:
    """Return a function that tells whether an engine's image can be started on this machine."""

    async def probe(spec: EngineSpec) -> EngineStatus:
        return await containers_here.standing(str(spec.options.get("image", "")))

    return probe


def hosted_spaces(settings: Settings, images: ContainerDriver, hub: GradioSpaces) -> HostedSpaces:
    """Return the service that installs Gradio spaces on this machine."""
    terms = space_images.SpaceRequirements(
        settings.data_dir / "spaces", settings.space_image, settings.space_base_image, settings.space_network
    )
    return HostedSpaces(SpaceDriver(images), images, hub, terms)


def _sandbox_status() -> EngineStatus:
    fault = bubblewrap.fault()
    return EngineStatus(not fault, fault or "bubblewrap")


def _ray_driver(settings: Settings, failpoints: Failpoints, templates: Templates) -> Driver:
    """Return the Ray driver; raises `InvalidSetting` if the extra `ray` is not installed."""
    try:
        module = importlib.import_module("sixfold.drivers.ray")
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            "SIXFOLD_DRIVER=ray requires the `ray` extra: run pip install 'sixfold[ray]'"
        ) from error
    driver: Driver = module.RayDriver(
        settings.ray_address,
        namespace=_namespace(settings),
        hardware={kind.id: kind.vram_gb for kind in templates.hardware.kinds()},
        failpoints=failpoints.engines,
    )
    return driver


def _namespace(settings: Settings) -> str:
    """Return the namespace shared by all servers of a database, which may stop each other's stale workers."""
    where = urlsplit(settings.database_url or settings.data_dir.as_uri())
    place = f"{where.hostname or ''}:{where.port or ''}{where.path}"
    return f"sixfold-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def policy(settings: Settings, templates: Templates) -> worker_policy.WorkerPolicy:
    return worker_policy.WorkerPolicy(
        slots=0 if settings.process else settings.workers,
        run_limit_seconds=settings.run_limit_seconds,
        lease_seconds=settings.lease_seconds,
        max_attempts=settings.max_attempts,
        queue_ttl_seconds=settings.queue_ttl,
        idle_seconds=settings.idle_seconds,
        memory_bytes=settings.worker_memory_bytes,
        scratch=settings.scratch_dir,
        idle_of=templates.idle_seconds,
        placed=settings.driver == "ray",
        memory=_memory_budget(settings),
    )


def _memory_budget(settings: Settings) -> MemoryBudget:
    """Return the memory that workers share on this machine; on a cluster, Ray manages it."""
    if settings.driver == "ray":
        return MemoryBudget()
    allowed = settings.machine_memory_bytes
    return MemoryBudget(process_memory.for_workers() if allowed is None else allowed, _weights_bytes)


def _weights_bytes(spec: EngineSpec) -> int:
    """Return the size in bytes of an engine's weight files, its minimum memory; 0 if a GPU holds them."""
    place = spec.options.get("weights") if spec.kind == "weights" else None
    return 0 if place is None or nvml.list_gpus() else process_memory.folder(Path(place))
