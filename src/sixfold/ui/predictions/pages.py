"""`/predictions/{id}`: the page of one run with its result, receipt and lineage, and its cancellation."""

from __future__ import annotations

import asyncio
import hashlib
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.media import drawings
from sixfold.core.media.media import MEDIA_PATH
from sixfold.core.predictions import lineage
from sixfold.core.predictions.states import PredictionState
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.predictions import data_drawings, output_view, provenance
from sixfold.ui.predictions.output_view import OutputView
from sixfold.ui.templating import PageTemplates
from sixfold.web import files, requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_FORM_BYTES = 4096


class PredictionPages:
    """The page of a run."""

    def __init__(self, services: WebServices, pages: PageTemplates, view: OutputView, auth: PageAuth) -> None:
        self._services = services
        self._pages = pages
        self._output_view = view
        self._auth = auth

    async def show_prediction(self, request: Request, user: PageUser) -> Response:
        """Show a prediction with its output, receipt and lineage."""
        prediction_id = requests.path_value(request, "prediction_id")
        prediction = await self._services.predictions.get(prediction_id, user.tenant)
        related = await self._services.database.read(lineage.get(prediction), in_thread=True)
        same = related.same if prediction.state is PredictionState.SUCCEEDED else ()
        repeats = await provenance.compared(self._services, prediction, same)
        return self._pages.render(
            "predictions/prediction.html",
            user.session,
            related=related,
            repeats=repeats,
            media=MEDIA_PATH,
            **await self._output_view.values(prediction),
        )

    async def download(self, request: Request, user: PageUser) -> Response:
        """Return the output of a prediction without files, such as a forecast, as a file."""
        prediction = await self._services.predictions.get(
            requests.path_value(request, "prediction_id"), user.tenant
        )
        file = await asyncio.to_thread(output_view.data_file, prediction)
        if file is None:
            raise errors.NotFound(f"Prediction {prediction.id} has no data to download.")
        name, content, media_type = file
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
            "Cache-Control": "no-store",
        }
        return Response(content, headers=headers, media_type=media_type)

    async def drawing(self, request: Request, user: PageUser) -> Response:
        """Return a picture of a result that is data, for lists."""
        prediction = await self._services.predictions.get(
            requests.path_value(request, "prediction_id"), user.tenant
        )
        output = prediction.output
        if output is None or output.files:
            raise errors.NotFound(f"Prediction {prediction.id} has no data to draw.")
        data, inputs = output.first.data, prediction.task.inputs
        image = await self._services.media.drawings.of_run(
            prediction.id, lambda: data_drawings.draw(prediction.model, inputs, data)
        )
        if image is None:
            raise errors.NotFound(f"Prediction {prediction.id} has no data to draw.")
        tag = hashlib.sha256(image).hexdigest()
        headers = {"Cache-Control": files.REVALIDATE_PRIVATE, "ETag": f'"{tag}"'}
        if files.is_known(request, tag):
            return Response(None, 304, headers)
        return Response(image, headers=headers, media_type=drawings.DRAWING_TYPE)

    async def cancel(self, request: Request, user: PageUser) -> Response:
        await self._auth.read_form(request, user)
        prediction_id = requests.path_value(request, "prediction_id")
        prediction = await self._services.predictions.cancel(prediction_id, user.tenant)
        return RedirectResponse(f"/predictions/{quote(prediction.id)}", 303)


def routes(
    services: WebServices, pages: PageTemplates, view: OutputView, auth: PageAuth
) -> tuple[RouteEntry, ...]:
    predictions = PredictionPages(services, pages, view, auth)
    show_prediction, cancel = auth.page(predictions.show_prediction), auth.page(predictions.cancel)
    path = "/predictions/{prediction_id}"
    return (
        RouteEntry(path, {"GET": show_prediction}, access=rights.RUN),
        RouteEntry(f"{path}/data", {"GET": auth.page(predictions.download)}, access=rights.RUN),
        RouteEntry(f"{path}/drawing", {"GET": auth.page(predictions.drawing)}, access=rights.RUN),
        RouteEntry(f"{path}/cancel", {"POST": cancel}, _FORM_BYTES, access=rights.RUN),
    )
