"""The sessions of this server: creation, connection, closing, and their end at shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.accounts.connections import Connections, Credential, current
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engine_selection import SelectionPolicy
from sixfold.core.catalog.models import Catalog, EngineSpec
from sixfold.core.catalog.templates import Templates
from sixfold.core.clock import SECOND_US
from sixfold.core.concurrency import background
from sixfold.core.database import Database
from sixfold.core.sessions import handover
from sixfold.core.sessions import repository as sessions
from sixfold.core.sessions.connection import DRAINED, NORMAL, REVOKED
from sixfold.core.sessions.handover import Checkpoint
from sixfold.core.sessions.recording import (
    MAX_ACCOUNT_RECORDINGS,
    MAX_RECORDINGS,
    EndedRecordings,
    SessionRecording,
)
from sixfold.core.sessions.repository import OpenedSession, SessionDraft, SessionLease, SessionRecord
from sixfold.core.sessions.runner import SessionEnding, SessionHooks, SessionRunner
from sixfold.core.sessions.states import SessionEvent
from sixfold.core.sessions.worker_pool import SessionWorkerPool
from sixfold.core.workers.lease_guard import LeaseGuard
from sixfold.core.workers.policy import WorkerPolicy, worker_spec
from sixfold.core.workers.ports import Driver

_LOG = logging.getLogger("sixfold.sessions")
DEFAULT_FPS, MAX_FPS, POSE_FPS = 30, 60, 20
DEFAULT_IDLE_SECONDS = 120
_DRAIN_SECONDS = 5.0
_RETRY_SECONDS = 0.5
CLOSE_SECONDS = 10.0
_CLOSE_PENDING = "The session has stopped, but its end could not be stored: repeat the request"


class SessionRequest(msgspec.Struct, frozen=True):
    """A request for a session; `fps` is ignored for models that output poses.

    `hardware` is an id of the hardware catalog; the default is the hardware of the template.
    """

    principal: Principal
    request_id: str
    model: str
    inputs: Mapping[str, Any]
    fps: int | None = None
    hardware: str | None = None


class SessionCatalog(msgspec.Struct, frozen=True):
    """The models that support sessions, and the maximum number of open sessions of an account.

    A session without input for `pause_seconds` is paused.
    """

    catalog: Catalog
    templates: Templates
    policy: SelectionPolicy
    limit: int
    pause_seconds: float


class SessionService:
    """All sessions of this server. See `start` and `drain`."""

    def __init__(
        self,
        database: Database,
        driver: Driver,
        session_catalog: SessionCatalog,
        policy: WorkerPolicy,
        boot: str,
        connections: Connections | None = None,
    ) -> None:
        self._database = database
        self._worker_pool = SessionWorkerPool(driver)
        self._session_catalog = session_catalog
        self._policy = policy
        self._lease = SessionLease(boot, int(policy.lease_seconds * SECOND_US))
        self._running: dict[str, SessionRunner] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ended_recordings = EndedRecordings()
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._draining = False
        self._shared = False
        self._connections = Connections(database) if connections is None else connections

    # -- lifecycle -------------------------------------------------------------------------------

    async def start(self, *, alone: bool) -> None:
        """End the sessions that a previous process left open.

        If other servers exist (not `alone`), only sessions with an expired lease are ended.
        """
        self._shared = not alone
        while await self._database.write(sessions.end_lost(self._lease.holder, lapsed_only=not alone)):
            pass
        self._heartbeat_task = asyncio.create_task(self._heartbeat(), name="sessions")

    async def drain(self) -> None:
        """Close every session, or leave it to the server to which its socket connects next.

        New sessions are not accepted.
        """
        self._draining = True
        for running in self._running.values():
            running.end(SessionEnding(None if self._shared else SessionEvent.CLOSE, "drained", DRAINED))
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=_DRAIN_SECONDS)
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()

    async def _heartbeat(self) -> None:
        """Renew this server's leases, and end the sessions of servers whose leases have expired."""
        interval = self._policy.lease_seconds / 3
        lease_guard = LeaseGuard(interval, self._policy.lease_seconds)

        async def renew() -> None:
            self._ended_recordings.sweep()
            await self._database.write(sessions.heartbeat(self._lease, tuple(self._running)), durable=False)
            if lease_guard.is_reliable():
                running = tuple(self._running)
                await self._database.write(sessions.end_lost(self._lease.holder, running, lapsed_only=True))

        await background.repeat(interval, {"heartbeat of sessions": renew})

    @property
    def running(self) -> tuple[SessionRunner, ...]:
        return tuple(self._running.values())

    # -- requests --------------------------------------------------------------------------------

    async def create(self, request: SessionRequest) -> OpenedSession:
        """Create a session; it starts in the background.

        Raises `Forbidden`, `NotFound`, `BadRequest` for a model without sessions, `InvalidInput`,
        `EngineUnavailable`, `InsufficientCredits` and `TooManyRequests`.
        """
        request.principal.require(rights.RUN)
        request.principal.permit(request.model)
        if self._draining:
            raise errors.ShuttingDown
        model = self._session_catalog.catalog.public(request.model)
        if (
            request.model not in self._session_catalog.templates
            or not self._session_catalog.templates[request.model].session
        ):
            raise errors.BadRequest(f"{request.model} does not support sessions: create a prediction instead")
        values = model.check(request.inputs)
        engine, quality = model.choose(values, self._session_catalog.policy)
        rate = self._session_catalog.templates.hardware_rate(request.model, request.hardware)
        free = self._session_catalog.catalog.prices.own_hardware_free and engine.on_own_hardware
        draft = SessionDraft(
            account_id=request.principal.account_id,
            request_id=request.request_id,
            model=request.model,
            engine=engine.name,
            quality=quality,
            hardware=rate.hardware,
            inputs=values,
            fps=POSE_FPS if model.output_kind == "json" else request.fps or DEFAULT_FPS,
            rate=0 if free else rate.hour_micros,
            list_rate=rate.hour_micros if free else None,
            idle_us=int(self._idle_seconds(request.model) * SECOND_US),
            limit=self._session_catalog.limit,
            payer=budgets.payer_of(request.principal),
            credential=None if (credential := current()) is None else credential.text,
            credential_id=request.principal.credential_id or None,
        )
        session = await self._database.write(sessions.create(draft, self._lease))
        self._start_runner(session.session, engine)
        return session

    async def find(self, session_id: str, tenant: Tenant) -> SessionRecord:
        """Return a session of a tenant; raises `NotFound`."""
        return await self._database.read(sessions.find(session_id, tenant), snapshot=False)

    async def close(self, session_id: str, tenant: Tenant) -> SessionRecord:
        """Close a session and wait for its end, unless it has already ended.

        Raises `NotFound`, and `StoreFailed` if the end cannot be stored now; the session ends nevertheless.
        """
        running = self._running.get(session_id)
        if running is not None and _belongs_to(running.session, tenant):
            running.end(SessionEnding(SessionEvent.CLOSE, "closed", NORMAL))
            _, open_still = await asyncio.wait({self._tasks[session_id]}, timeout=CLOSE_SECONDS)
            if open_still:
                raise errors.StoreFailed(_CLOSE_PENDING)
        session = await self.find(session_id, tenant)
        if self._shared and not session.is_terminal:
            return await self._database.write(handover.close(session.id, self._lease))
        return session

    async def start_recording(self, session_id: str, tenant: Tenant) -> None:
        """Begin to record a session that runs on this server.

        Raises `NotFound` and `Conflict`, and `TooManyRequests` if the server or the account has too many
        recordings.
        """
        await self.find(session_id, tenant)
        running = self._running.get(session_id)
        if running is None:
            raise errors.Conflict("The session is not running on this server")
        if running.recording is None:
            recordings = [
                runner.recording for runner in self._running.values() if runner.recording is not None
            ]
            tenant_recordings = [
                recording for recording in recordings if recording.account_id == tenant.account_id
            ]
            if len(tenant_recordings) >= MAX_ACCOUNT_RECORDINGS:
                raise errors.TooManyRequests(
                    f"An account can record at most {MAX_ACCOUNT_RECORDINGS} sessions at a time: end a "
                    "recording first",
                    retry_after=30,
                )
            if len(recordings) >= MAX_RECORDINGS:
                raise errors.TooManyRequests(
                    f"This server can record at most {MAX_RECORDINGS} sessions at a time: try again later",
                    retry_after=30,
                )
            running.recording = SessionRecording(
                running.prompt, tenant.account_id, self._policy.scratch / "recordings"
            )

    @contextlib.asynccontextmanager
    async def take_recording(self, session_id: str, tenant: Tenant) -> AsyncGenerator[SessionRecording]:
        """End the recording of a session and yield it.

        If the block raises, the recording can be requested again. Raises `NotFound` and `Conflict`.
        """
        await self.find(session_id, tenant)
        running = self._running.get(session_id)
        recording = None if running is None else running.recording
        if running is not None and recording is not None:
            running.recording = None
        else:
            recording = self._ended_recordings.take(session_id)
        if recording is None or not recording.pieces:
            raise errors.Conflict("This session is not being recorded: start a recording first")
        try:
            yield recording
        except BaseException:
            self._ended_recordings.add(session_id, recording)
            raise

    async def admit(self, session_id: str, token: str) -> tuple[SessionRecord, SessionRunner | None] | None:
        """Return the session that `token` opens and its local runner, or None for a wrong token.

        A session of another server is taken over and then runs on this server. The runner is None if the
        session has ended.
        """
        session = await self._database.read(sessions.by_id(session_id), snapshot=False)
        if session is None or not token or not session.opens_to(token):
            return None
        if self._shared and not (self._draining or session.is_terminal or session.id in self._running):
            session = await self._take_over(session)
        return session, self._running.get(session.id)

    async def _take_over(self, session: SessionRecord) -> SessionRecord:
        takeover = await self._database.write(handover.take_over(session.id, self._lease))
        if not takeover.session.is_terminal and session.id not in self._running:
            engine = self._session_catalog.catalog.engines()[session.engine]
            self._start_runner(takeover.session, engine, takeover.checkpoint)
        return takeover.session

    def _idle_seconds(self, model: str) -> float:
        configured = self._policy.idle_seconds
        return configured if configured is not None else self._template_idle_seconds(model)

    def _template_idle_seconds(self, model: str) -> float:
        return self._session_catalog.templates[model].idle_seconds or DEFAULT_IDLE_SECONDS

    # -- running ---------------------------------------------------------------------------------

    def _start_runner(
        self, session: SessionRecord, engine: EngineSpec, checkpoint: Checkpoint | None = None
    ) -> None:
        spec = worker_spec(engine, self._policy, session.hardware, self._lease.holder)
        spec = replace(spec, watched=True)
        hooks = SessionHooks(
            acquire_slot=lambda lost: self._worker_pool.acquire(spec, engine.max_sessions, lost),
            transition=self._transition,
            renew_slices=self._renew_slices,
            skip_time=self._skip_time,
            save_checkpoint=self._save_checkpoint if self._shared else None,
        )
        self._running[session.id] = running = SessionRunner(
            session, hooks, self._session_catalog.pause_seconds, checkpoint
        )
        task = asyncio.create_task(self._run(running), name=session.id)
        self._tasks[session.id] = task

    async def _run(self, running: SessionRunner) -> None:
        remove = self._end_with_credential(running)
        try:
            await running.run()
        except errors.SixfoldError:
            _LOG.exception("a session could not be settled; the next server start settles it")
        finally:
            remove()
            if running.recording is not None:
                self._ended_recordings.add(running.session.id, running.recording)
            del self._running[running.session.id], self._tasks[running.session.id]

    def _end_with_credential(self, running: SessionRunner) -> Callable[[], None]:
        credential = running.session.credential
        if credential is None:
            return lambda: None
        return self._connections.add(
            Credential.of(credential),
            lambda: running.end(SessionEnding(SessionEvent.CLOSE, "revoked", REVOKED)),
        )

    async def _transition(self, session_id: str, event: SessionEvent, reason: str | None) -> SessionRecord:
        """Write a transition, and retry while the store fails, so that every session is ended properly."""
        while True:
            try:
                return await self._database.write(sessions.transition(session_id, event, self._lease, reason))
            except errors.StoreFailed:
                _LOG.exception("a session transition could not be written; retrying")
                await asyncio.sleep(_RETRY_SECONDS)

    async def _skip_time(self, session_id: str, us: int) -> None:
        await self._database.write(sessions.skip_time(session_id, us, self._lease))

    async def _save_checkpoint(self, session_id: str, checkpoint: Checkpoint) -> bool:
        storing = handover.save_checkpoint(session_id, self._lease, checkpoint)
        return await self._database.write(storing, durable=False)

    async def _renew_slices(self, session_id: str, elapsed_us: int) -> tuple[SessionRecord, int]:
        return await handover.renew_slices(self._database, session_id, self._lease, elapsed_us)


def _belongs_to(session: SessionRecord, tenant: Tenant) -> bool:
    return tenant.sees(session.account_id, session.credential_id or "")
