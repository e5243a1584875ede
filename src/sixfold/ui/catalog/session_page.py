"""`/live/{model}`: the page of a live session, and its recordings."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import rights
from sixfold.core.predictions import pricing
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.requests import PredictionRequest
from sixfold.core.sessions.recording import MAX_SECONDS, SessionRecording
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import example_outputs
from sixfold.ui.templating import PageHandlers, PageTemplates
from sixfold.web import bodies, requests, responses
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_MOVES = {"w": "Forward", "a": "Turn left", "s": "Back", "d": "Turn right"}


class SessionPages(PageHandlers):
    """The session page, whose script opens the session, and the endpoint for its recordings."""

    async def show(self, request: Request, user: PageUser) -> Response:
        name = requests.path_value(request, "model")
        templates = self._services.templates
        if name not in templates or not templates[name].session:
            raise errors.NotFound(f"{name[:100]} does not support live sessions")
        model, example = self._services.catalog[name], example_outputs.by_model().get(name)
        return self._pages.render(
            "catalog/session.html",
            user.session,
            model=model,
            hour=money.format_usd(templates[name].hour_micros),
            free=pricing.is_waived(self._services.catalog, self._services.predictions.terms, model),
            prompt="" if example is None else example.inputs.get("prompt", ""),
            moves=_MOVES,
            pause_seconds=self._services.settings.session_pause_seconds,
            user=user,
            example=example,
        )

    async def record(self, request: Request, user: PageUser) -> Response:
        """Start a recording, or end it and start a run that renders it; return the run's ID."""
        session_id = requests.path_value(request, "session_id")
        sessions = self._services.live_sessions
        if bodies.parse_object(await request.body()).get("on") is True:
            await sessions.start_recording(session_id, user.tenant)
            return responses.json({"max_seconds": MAX_SECONDS})
        async with sessions.take_recording(session_id, user.tenant) as recording:
            prediction = await self._submit(request, user, session_id, recording)
        return responses.json({"id": prediction.id, "seconds": recording.seconds}, 202)

    async def _submit(
        self, request: Request, user: PageUser, session_id: str, recording: SessionRecording
    ) -> Prediction:
        archive = await asyncio.to_thread(recording.archive)
        account_id = user.tenant.account_id
        source = await self._services.media.store_unnamed(archive, "application/zip", account_id)
        prediction_request = PredictionRequest(
            principal=user.principal,
            model="live-recording",
            inputs={"prompt": recording.prompt, "session": session_id, "frames": "frames.zip"},
            face="pages",
            request_id=requests.request_id(request),
            sources={"frames": source},
            internal=True,
        )
        return await self._services.predictions.submit(prediction_request)


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    sessions = SessionPages(services, pages)
    record = auth.script(sessions.record)
    return (
        RouteEntry("/live/{model}", {"GET": auth.page(sessions.show)}, access=rights.RUN),
        RouteEntry("/pages/sessions/{session_id}/recording", {"POST": record}, 1024, access=rights.RUN),
    )
