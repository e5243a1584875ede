"""Every face upon one product, as one ASGI application."""

from __future__ import annotations

from starlette.types import ASGIApp

from sixfold.areas.media import routes as media
from sixfold.assembly import Product
from sixfold.web.app import App
from sixfold.web.auth import Doors
from sixfold.web.idempotency import Repeats
from sixfold.web.metrics import Metrics
from sixfold.web.origin import Origins
from sixfold.web.services import Services
from sixfold.web.sessions import Sessions


def create_app(product: Product) -> ASGIApp:
    """The application of a product that is running (`assembly.running`); it starts and stops nothing."""
    services = build_services(product)
    faces = [media.face(services)]
    return App(faces, Metrics())


def build_services(product: Product) -> Services:
    """What the faces are built from."""
    settings, database = product.settings, product.database
    origins = Origins(settings)
    return Services(
        settings=settings,
        database=database,
        blobs=product.blobs,
        uploads=product.uploads,
        catalog=product.catalog,
        prices=product.prices,
        media=product.media,
        pipeline=product.pipeline,
        supervisor=product.supervisor,
        origins=origins,
        doors=Doors(database, settings, origins),
        sessions=Sessions(database, settings, origins),
        repeats=Repeats(database, product.supervisor.boot, settings.inline_seconds),
    )
