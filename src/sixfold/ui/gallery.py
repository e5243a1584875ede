"""`/gallery` and `/characters`: public posts and characters of all accounts, and the publication of runs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import gallery
from sixfold.core.accounts import rights
from sixfold.core.catalog.models import Model
from sixfold.core.gallery import PostDraft
from sixfold.core.media.media import MEDIA_PATH, MediaSource
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions.history.titles import title_of
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.shares.text_inputs import text_inputs
from sixfold.ui.auth import PageAuth, PageUser
from sixfold.ui.templating import PageTemplates
from sixfold.web import requests
from sixfold.web.routing import RouteEntry
from sixfold.web.services import WebServices

_PAGE = 30
_MAX_TEXT, _MAX_POST = 100, 2000
_FORM_BYTES = 32_768
_REFUSALS = (errors.InvalidInput, errors.Conflict)


class GalleryPages:
    """The public lists, newest first, and the page of a post."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        self._services = services
        self._pages = pages
        self._gallery = services.gallery

    async def posts(self, request: Request) -> Response:
        """Show the posts of all accounts, optionally with one tag."""
        session = await self._services.sessions.admitted(request)
        tag = request.query_params.get("tag", "")[:_MAX_TEXT]
        page = await self._gallery.posts(_PAGE, _cursor(request), tag)
        return self._pages.render("gallery/list.html", session, page=page, tag=tag, media=MEDIA_PATH)

    async def characters(self, request: Request) -> Response:
        session = await self._services.sessions.admitted(request)
        page = await self._gallery.characters(_PAGE, _cursor(request))
        return self._pages.render("gallery/characters.html", session, page=page, media=MEDIA_PATH)

    async def post(self, request: Request) -> Response:
        """Show a post, which may be unlisted."""
        session = await self._services.sessions.admitted(request)
        post = await self._services.database.read(
            gallery.get_post(requests.path_value(request, "post_id")), snapshot=False
        )
        is_known, base = post.model in self._services.catalog, self._services.settings.base_url
        response = self._pages.render(
            "gallery/post.html",
            session,
            post=post,
            is_own=session is not None and session.account.id == post.account_id,
            model=self._services.catalog[post.model] if is_known else None,
            media=MEDIA_PATH,
            url=f"{base}/gallery/posts/{post.id}",
            preview=f"{base}{MEDIA_PATH}{post.media}?w=960",
        )
        if post.is_unlisted:
            response.headers["X-Robots-Tag"] = "noindex, nofollow"
        return response


class PublishForms:
    """The forms to publish the result of a run, and to delete posts and characters as owner or operator."""

    def __init__(self, services: WebServices, pages: PageTemplates, auth: PageAuth) -> None:
        self._services = services
        self._pages = pages
        self._auth = auth
        self._gallery = services.gallery

    async def form(self, request: Request, user: PageUser) -> Response:
        result = await self._result(user, requests.query_text(request, "run", _MAX_TEXT))
        return await self._render(user, result)

    async def publish(self, request: Request, user: PageUser) -> Response:
        """Publish the first image or video of a run under the account's public name."""
        form = await self._auth.read_form(request, user)
        prediction, file = result = await self._result(user, form.get("run", ""))
        model = self._model(prediction) if "inputs" in form else None
        draft = PostDraft(
            user.account_id,
            form.get("text", "").strip(),
            "",
            file.content_type,
            _tags(form.get("tags", "")),
            is_unlisted="unlisted" in form,
            model="" if model is None else model.name,
            inputs={} if model is None else text_inputs(prediction.inputs, model),
        )
        name = form.get("name", "").strip().lower()
        try:
            _check(draft)
            await self._services.database.write(gallery.set_public_name(user.account_id, name))
        except _REFUSALS as error:
            return await self._render(user, result, form, error.message, error.status)
        stored = await self._services.media.find(file.name)
        source = MediaSource(stored.blob, stored.content_type, stored.size)
        post = await self._gallery.add_post(draft, source, is_output=True)
        return RedirectResponse(f"/gallery/posts/{post.id}", 303)

    async def delete(self, request: Request, user: PageUser) -> Response:
        await self._auth.read_form(request, user)
        post_id = requests.path_value(request, "post_id")
        await self._services.database.write(gallery.delete_post(user.account_id, post_id))
        return RedirectResponse("/gallery", 303)

    async def remove(self, request: Request, user: PageUser) -> Response:
        """Delete a post of any account, as an operator."""
        await self._auth.read_form(request, user)
        post_id = requests.path_value(request, "post_id")
        await self._services.database.write(gallery.remove_post(user.principal, post_id))
        return RedirectResponse("/gallery", 303)

    async def delete_character(self, request: Request, user: PageUser) -> Response:
        await self._auth.read_form(request, user)
        character_id = requests.path_value(request, "character_id")
        await self._services.database.write(gallery.delete_character(user.account_id, character_id))
        return RedirectResponse("/characters", 303)

    async def remove_character(self, request: Request, user: PageUser) -> Response:
        """Delete a character of any account, as an operator."""
        await self._auth.read_form(request, user)
        character_id = requests.path_value(request, "character_id")
        await self._services.database.write(gallery.remove_character(user.principal, character_id))
        return RedirectResponse("/characters", 303)

    async def _result(self, user: PageUser, prediction_id: str) -> tuple[Prediction, OutputFile]:
        """Return a run and its first image or video; raises `NotFound`, or `Conflict` if it has neither."""
        prediction = await self._services.predictions.get(prediction_id, user.tenant)
        output = prediction.output
        files = () if output is None else output.files
        visible_files = [file for file in files if file.content_type.startswith(("image/", "video/"))]
        if prediction.state is not PredictionState.SUCCEEDED or not visible_files:
            raise errors.Conflict("Only a run that generated an image or a video can be published")
        return prediction, visible_files[0]

    def _model(self, prediction: Prediction) -> Model | None:
        """Return the built-in model of a run; a custom model is not available to other accounts."""
        is_public = prediction.model in self._services.catalog
        return self._services.catalog[prediction.model] if is_public else None

    async def _render(
        self,
        user: PageUser,
        result: tuple[Prediction, OutputFile],
        form: dict[str, str] | None = None,
        problem: str = "",
        status: int = 200,
    ) -> Response:
        prediction, file = result
        name = await self._services.database.read(gallery.public_name(user.account_id), snapshot=False)
        values: dict[str, Any] = {"text": title_of(prediction.inputs), "tags": "", "name": name}
        return self._pages.render(
            "gallery/publish.html",
            user.session,
            status=status,
            user=user,
            prediction=prediction,
            thumbnail=f"{MEDIA_PATH}{file.name}{'' if 'svg' in file.content_type else '?w=320'}",
            form={**values, **(form or {})},
            has_form=form is not None,
            may_remix=self._model(prediction) is not None,
            problem=problem,
        )


def _tags(text: str) -> tuple[str, ...]:
    tags = (gallery.normalize_tag(tag) for tag in text.split(","))
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def _check(draft: PostDraft) -> None:
    if len(draft.text) > _MAX_POST:
        raise errors.InvalidInput.of(
            "text", f"The text must have at most {_MAX_POST} characters (got {len(draft.text)})"
        )
    if len(draft.tags) > gallery.MAX_TAGS or any(len(tag) > gallery.MAX_TAG_CHARS for tag in draft.tags):
        raise errors.InvalidInput.of(
            "tags",
            f"A post may have at most {gallery.MAX_TAGS} tags of at most {gallery.MAX_TAG_CHARS} characters",
        )


def _cursor(request: Request) -> str | None:
    return request.query_params.get("cursor", "")[:_MAX_TEXT] or None


def routes(services: WebServices, pages: PageTemplates, auth: PageAuth) -> tuple[RouteEntry, ...]:
    """Return the routes of the lists, of a post, and of the forms."""
    public, own = GalleryPages(services, pages), PublishForms(services, pages, auth)
    publish = {"GET": auth.page(own.form), "POST": auth.signed_in(own.publish)}
    post, character = "/gallery/posts/{post_id}", "/characters/{character_id}"
    remove, remove_character = auth.page(own.remove), auth.page(own.remove_character)
    delete_character = auth.signed_in(own.delete_character)
    changes = rights.OPERATE_CHANGES
    return (
        RouteEntry("/gallery", {"GET": public.posts}, access=rights.PUBLIC),
        RouteEntry("/characters", {"GET": public.characters}, access=rights.PUBLIC),
        RouteEntry("/gallery/publish", publish, _FORM_BYTES, access=rights.RUN),
        RouteEntry(post, {"GET": public.post}, access=rights.PUBLIC),
        RouteEntry(f"{post}/delete", {"POST": auth.signed_in(own.delete)}, _FORM_BYTES, access=rights.RUN),
        RouteEntry(f"{post}/remove", {"POST": remove}, _FORM_BYTES, access=changes),
        RouteEntry(f"{character}/delete", {"POST": delete_character}, _FORM_BYTES, access=rights.RUN),
        RouteEntry(f"{character}/remove", {"POST": remove_character}, _FORM_BYTES, access=changes),
    )
