"""Templates to answers: one environment, one set of headers, and errors as a page."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup, escape
from starlette.responses import RedirectResponse, Response

from sixfold import errors
from sixfold.core import humanize, money
from sixfold.core.accounts import charges
from sixfold.core.catalog.custom_models import engine_name
from sixfold.core.clock import rfc3339
from sixfold.core.predictions import receipt
from sixfold.errors import SixfoldError
from sixfold.web import responses
from sixfold.web.sessions import SessionCookie

_FOLDER = Path(__file__).parent
STATIC = _FOLDER / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_BACKTICKS = re.compile("`([^`]+)`")
_NONE: Mapping[str, Callable[..., Any]] = {}
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class PageTemplates:
    """Renders templates; what they may call is listed here."""

    def __init__(
        self, areas: Collection[str] = (), filters: Mapping[str, Callable[..., Any]] = _NONE
    ) -> None:
        """`areas` are those that are served, `filters` what templates of one part need besides."""
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "usd": money.format_usd,
            "would_cost": receipt.would_cost,
            "moment": _moment,
            "took": took,
            "size": humanize.size,
            "coded": _coded,
            "engine_name": engine_name,
            "parted": _parted,
            "charge_sum": _charge_sum,
            "sum_in_words": charges.in_words,
            **filters,
        }
        self._environment.globals |= {
            "receipt": receipt.of,
            "itemized": receipt.itemized,
            "asset": _asset,
            "served": frozenset(areas),
        }

    def render(
        self, name: str, session: SessionCookie | None, *, status: int = 200, **values: Any
    ) -> Response:
        """One page."""
        return Response(self.text(name, session=session, **values), status, _HEADERS, "text/html")

    def text(self, name: str, **values: Any) -> str:
        """A part of a page."""
        return self._environment.get_template(name).render(**values)

    def dialect(self, error: SixfoldError, request_id: str) -> Response:
        """An error as a page; where a newer sign-in is needed, the way to it and back."""
        if isinstance(error, errors.SignInAgain):
            return RedirectResponse(f"/signin?{urlencode({'again': 1, 'next': error.page})}", 303, _HEADERS)
        response = self.render("error.html", None, status=error.status, error=error, request_id=request_id)
        response.headers.update(responses.error_headers(error))
        return response


@cache
def _asset(name: str) -> str:
    """The path of a static file, with its content's hash, so that it may be kept for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def _coded(text: str) -> Markup:
    """A sentence with what stands between backticks as code."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped just before


def _parted(path: str) -> Markup:
    """A path that may break where its parts meet."""
    return Markup("<wbr>/".join(str(escape(path)).split("/")).removeprefix("<wbr>"))  # noqa: S704 - escaped just before


def _moment(epoch_us: int | None) -> str:
    return (rfc3339(epoch_us) or "")[:19].replace("T", " ")


def took(micros: int | None) -> str:
    """How long something took, or a dash where it has not ended."""
    return "–" if micros is None else humanize.duration(micros / 1000)


def _charge_sum(stored: str | None) -> str:
    """The sum of a charge as it is stored; empty where there is none, or no line of it."""
    charge = charges.decode(stored)
    return charges.in_words(charge) or "" if charge is not None and charge.lines else ""
