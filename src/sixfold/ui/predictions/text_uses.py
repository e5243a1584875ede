"""`/use-in`: the models that accept an answer or an image of a chat as their input, with filled forms."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from sixfold import errors
from sixfold.core.accounts import rights
from sixfold.core.gateway.conversations.chats import ChatStore
from sixfold.core.media.media import MEDIA_PATH
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.catalog import initial_values
from sixfold.ui.catalog.next_models import NextModels
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_MAX_ID, _EXCERPT = 200, 400


class TextUsePages:
    """The list of models for a text or an image of a chat, which works without a script."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._next_models = NextModels(services)
        self._chats = ChatStore(services.database, services.conversations)

    async def show(self, request: Request, user: PageUser) -> Response:
        """Show the models; raises `ConversationNotFound`, `ItemNotFound` or `NotFound`."""
        chat_id = requests.query_text(request, "from", _MAX_ID)
        item_id = requests.query_text(request, "item", _MAX_ID)
        run_id = requests.query_text(request, "run", _MAX_ID)
        back = f"/chat/{chat_id}#m-{item_id}"
        if run_id:
            return await self._show_image(user, run_id, back)
        text = await initial_values.chat_text(self._chats, user.tenant, chat_id, item_id)
        return self._pages.render(
            "catalog/use_in.html",
            user.session,
            user=user,
            text=" ".join(text.split())[:_EXCERPT],
            back=back,
            query=urlencode({"from": chat_id, "item": item_id}),
            models=self._next_models.for_kind("text"),
        )

    async def _show_image(self, user: PageUser, run_id: str, back: str) -> Response:
        """Show the models for the image of a run; raises `NotFound`."""
        prediction = await self._services.predictions.get(run_id, user.tenant)
        files = () if prediction.output is None else prediction.output.files
        if not files:
            raise errors.NotFound("This run does not have a file")
        return self._pages.render(
            "catalog/use_in.html",
            user.session,
            user=user,
            image=f"{MEDIA_PATH}{files[0].name}",
            back=back,
            query=urlencode({"from": prediction.id}),
            models=self._next_models.for_kind("image", prediction.model),
        )


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    show = auth.page(TextUsePages(services, pages).show)
    return (RouteEntry("/use-in", {"GET": show}, access=rights.RUN),)
