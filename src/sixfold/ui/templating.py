"""Template rendering: the Jinja environment, the response headers and error pages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast
from urllib.parse import urlencode

import jinja2
import jinja2.runtime
from markupsafe import Markup, escape
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import humanize, money
from sixfold.core.accounts import charges
from sixfold.core.accounts.accounts import Account
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.catalog.models import Catalog
from sixfold.core.clock import rfc3339
from sixfold.core.media import thumbnails
from sixfold.core.predictions import receipt
from sixfold.errors import SixfoldError
from sixfold.web import responses, sessions
from sixfold.web.services import ServiceHandlers, WebServices
from sixfold.web.sessions import SessionCookie

_FOLDER = Path(__file__).parent
STATIC = _FOLDER / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_ADDRESS_MARKS = re.compile(r"([@.])")
_BACKTICKS = re.compile("`([^`]+)`")
# Suffixes of files to which graphs are exported.
_FILE_ENDING = re.compile(r"([._-](ui|api|json|workflow))+$", re.IGNORECASE)
# The link in errors about insufficient credit: a user pays by card there, or asks the operator.
GET_CREDIT = {"href": "/account/billing#credit", "title": "Get credit"}
_NO_FILTERS: Mapping[str, Callable[..., Any]] = {}
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class _PageContext(jinja2.runtime.Context):
    """The variables of a template, of which those of one page can be dropped."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if (contexts := _contexts.get()) is not None:
            contexts.append(self)

    def drop(self, values: Mapping[str, Any]) -> None:
        """Drop the values of a page; a context without them belongs to macros that other pages use."""
        if self.parent.keys() & values.keys():
            self.vars.clear()
            for name in values:
                self.parent.pop(name, None)


# The contexts of the page that is being rendered.
_contexts: ContextVar[list[_PageContext] | None] = ContextVar("contexts", default=None)


class PageTemplates:
    """The Jinja environment with the filters and globals of all templates."""

    # Several servers in one process can share the compiled templates.
    bytecode_cache: ClassVar[jinja2.BytecodeCache | None] = None

    def __init__(
        self, apis: Collection[str] = (), filters: Mapping[str, Callable[..., Any]] = _NO_FILTERS
    ) -> None:
        """Create an environment; `apis` are the enabled APIs, `filters` are added to the common ones."""
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            bytecode_cache=self.bytecode_cache,
        )
        self._environment.context_class = _PageContext
        self._environment.filters |= {
            "usd": money.format_usd,
            "short_usd": money.short_usd,
            "amount": _amount,
            "list_price": receipt.would_cost,
            "moment": _moment,
            "duration": duration,
            "has_thumbnail": thumbnails.is_offered,
            "size": humanize.size,
            "code_spans": _code_spans,
            "engine_name": engine_name,
            "breakable": _breakable,
            "breakable_address": _breakable_address,
            "workflow_title": _workflow_title,
            "stored_calculation": _stored_calculation,
            "calculation": charges.in_words,
            "recorded": _recorded,
            **filters,
        }
        self._environment.globals |= {
            "get_credit": GET_CREDIT,
            "receipt_steps": receipt.steps,
            "itemize": receipt.itemized,
            "asset": _asset,
            "apis": frozenset(apis),
            "current_path": sessions.current_path.get,
        }

    def render(
        self, name: str, session: SessionCookie | None, *, status: int = 200, **values: Any
    ) -> Response:
        return Response(self.text(name, session=session, **values), status, _HEADERS, "text/html")

    def text(self, name: str, **values: Any) -> str:
        """Return a template as HTML text."""
        contexts: list[_PageContext] = []
        token = _contexts.set(contexts)
        try:
            return self._environment.get_template(name).render(**values)
        finally:
            _contexts.reset(token)
            # Macros and their context refer to each other: the text of a page, of up to megabytes, would stay
            # in memory until the next collection of garbage.
            for context in contexts:
                context.drop(values)

    def balance(self, account: Account) -> str:
        """Return the balance at the top of pages as HTML."""
        return self.text("balance.html", account=account)

    def error_page(self, error: SixfoldError, request_id: str) -> Response:
        """Return an error page, or a redirect to the sign-in page if a recent sign-in is required."""
        if isinstance(error, errors.SignInAgain):
            return RedirectResponse(f"/signin?{urlencode({'again': 1, 'next': error.page})}", 303, _HEADERS)
        session = sessions.current_session.get()
        response = self.render("error.html", session, status=error.status, error=error, request_id=request_id)
        response.headers.update(responses.error_headers(error))
        return response


@cache
def _asset(name: str) -> str:
    """Return the URL of a static file with its content hash, so that browsers may cache it forever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


class PageHandlers(ServiceHandlers):
    """Handlers of requests that render pages."""

    def __init__(self, services: WebServices, pages: PageTemplates) -> None:
        super().__init__(services)
        self._pages = pages


def _code_spans(text: str) -> Markup:
    """Return a text as HTML, with code elements for the parts between backticks."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped just before


def _breakable_address(text: str) -> Markup:
    """Return HTML in which lines break before the at sign and the dots of an e-mail address."""
    return Markup(_ADDRESS_MARKS.sub(r"<wbr>\1", str(escape(text))))  # noqa: S704 - escaped just before


def _breakable(path: str) -> Markup:
    """Return a path as HTML with line-break opportunities before its slashes."""
    return Markup("<wbr>/".join(str(escape(path)).split("/")).removeprefix("<wbr>"))  # noqa: S704 - escaped just before


def _workflow_title(name: str) -> str:
    """Return the title of a workflow; a file name is converted to words."""
    if " " in name:
        return name
    words = _FILE_ENDING.sub("", name).replace("__", ", ").replace("_", " ").strip(" ,")
    return " ".join(words.split()) or name


def model_title(catalog: Catalog, name: str) -> str:
    """Return the title of a model; the name of a workflow outside the catalog is converted to words."""
    if name in catalog:
        return catalog[name].title
    slug = name.removeprefix("space:")
    return name if slug == name else slug.replace("-", " ").capitalize()


def _recorded(text: str) -> str:
    """Return a value recorded with an operator's action as text: its fields, or its items in order."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        # A long value was truncated and is not valid JSON.
        return text
    return _in_words(value)


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return ", ".join(f"{name} {_in_words(each)}" for name, each in fields.items() if each != "")
    if isinstance(value, list):
        return ", then ".join(_in_words(each) for each in cast("list[Any]", value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return str(value)


def _moment(epoch_us: int | None) -> str:
    return (rfc3339(epoch_us) or "")[:19].replace("T", " ")


def _amount(micros: int) -> Markup:
    """Return a rounded amount as HTML, with the exact amount as its tooltip."""
    exact, short = money.format_usd(micros), money.short_usd(micros)
    return Markup(f'<data value="{exact}" title="{exact} USD">{short}</data>')  # noqa: S704 - digits only


def duration(micros: int | None) -> str:
    """Format a duration in µs; return a dash for None."""
    return "–" if micros is None else humanize.duration(micros / 1000)


def _stored_calculation(stored: str | None) -> str:
    """Return the calculation of a stored charge as text, or an empty string."""
    charge = charges.decode(stored)
    return charges.in_words(charge) or "" if charge is not None and charge.lines else ""
