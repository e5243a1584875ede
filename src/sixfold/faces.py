"""Every face upon one product, as one ASGI application."""

from __future__ import annotations

from starlette.types import ASGIApp

from sixfold.areas.hosting import routes as hosting
from sixfold.areas.imagekit import routes as imagekit
from sixfold.areas.media import routes as media
from sixfold.areas.platform import routes as platform
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
    metrics = Metrics()
    faces = [platform.face(services, metrics)]
    areas = product.settings.areas
    if "media" in areas:
        faces.append(media.face(services))
    if "imagekit" in areas:
        faces.append(imagekit.face(services, platform.nothing))
    if "hosting" in areas:
        faces.append(hosting.face(services))
    return App(faces, metrics)


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
