"""Settings in, running product out: the one module that names concrete classes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import secrets
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold import errors, workplaces, workshops
from sixfold.areas.gateway import talks
from sixfold.core.accounts import sweeping
from sixfold.core.accounts.identities import Provider
from sixfold.core.accounts.payments import Checkout
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.belongings.closing import Leaving
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database
from sixfold.core.graphs.workshop import Workshop
from sixfold.core.memory.limits import Limits as MemoryLimits
from sixfold.core.memory.memory import Memory
from sixfold.core.memory.search.finder import Finder
from sixfold.core.memory.search.shelf import Shelf
from sixfold.core.work import catalog as catalogs
from sixfold.core.work import choosing, orders
from sixfold.core.work.catalog import Catalog
from sixfold.core.work.children import PipelineChildren
from sixfold.core.work.choosing import Standing, Terms
from sixfold.core.work.engines import UnusableInput
from sixfold.core.work.events import Bus
from sixfold.core.work.failpoints import Failpoints
from sixfold.core.work.hardware import Shelf as HardwareShelf
from sixfold.core.work.images import Images
from sixfold.core.work.manifest.signing import Signer
from sixfold.core.work.media import Limits, Media
from sixfold.core.work.neighbours import Neighbours, Shared
from sixfold.core.work.outbox import Outbox
from sixfold.core.work.pipeline import Pipeline
from sixfold.core.work.ports import BlobStore
from sixfold.core.work.runs import Finisher
from sixfold.core.work.sessions_host import LiveSessions, Offer
from sixfold.core.work.spaces import SpacesHere
from sixfold.core.work.supervisor import Supervisor
from sixfold.core.work.templates import Templates
from sixfold.drivers.remote import ServerOutside
from sixfold.engines import wishes
from sixfold.engines.image import endings, headers
from sixfold.engines.image.style.names import NAMED_STYLES
from sixfold.engines.own import shelf as own_files
from sixfold.engines.remote.comfyui_standing import ComfyStandings
from sixfold.engines.standings import Probe, Standings
from sixfold.engines.video import endings as film_endings
from sixfold.engines.video import headers as film_headers
from sixfold.net.addresses import AllowList
from sixfold.net.clients import Clients
from sixfold.net.fetch import Fetcher
from sixfold.payments.erc20 import Deposits
from sixfold.payments.stripe import Stripe
from sixfold.settings import InvalidSetting, Settings
from sixfold.store import databases
from sixfold.store.archive import TableReader
from sixfold.store.cache import Bounds, Cache
from sixfold.store.files import FileStore
from sixfold.store.keeping import Keeper, Loader
from sixfold.store.secrets import provider_key
from sixfold.upstreams.chat import opening as relays
from sixfold.upstreams.chat.opening import Relaying
from sixfold.upstreams.gradio import spaces as gradio
from sixfold.upstreams.openid import OpenId

DATABASE = "sixfold.db"
_DATA = Path(__file__).parent / "data"
_CACHE_MARGIN_SECONDS = 60  # a file is handed out a little before its run begins
_LOOK_SECONDS = 10
_FORMATS = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}


@dataclass(frozen=True, slots=True)
class Product:
    """Everything that a running server is made of; the faces are built on it."""

    settings: Settings
    database: Database
    blobs: BlobStore
    uploads: BlobStore
    catalog: Catalog
    templates: Templates
    prices: PriceTable
    media: Media
    pipeline: Pipeline
    supervisor: Supervisor
    outbox: Outbox
    spaces: gradio.GradioSpaces
    spaces_here: SpacesHere
    shelf: own_files.Shelf
    live: LiveSessions
    standings: Standings
    clients: Clients
    fetcher: Fetcher
    signer: Signer
    bus: Bus
    memory: Memory
    neighbours: Neighbours | None
    finder: Finder
    relaying: Relaying
    checkout: Checkout
    provider: Provider
    deposits: Deposits
    images: Images
    workshop: Workshop


def read_toml(name: str) -> dict[str, Any]:
    """One of the data files that come with the program."""
    return tomllib.loads((_DATA / name).read_text("utf-8"))


def models_document() -> dict[str, Any]:
    """The bundled catalogue: the tables of every file in `data/models`, each name in one of them only."""
    whole: dict[str, dict[str, Any]] = {"engines": {}, "models": {}}
    for path in sorted((_DATA / "models").glob("*.toml")):
        for table, rows in read_toml(f"models/{path.name}").items():
            if twice := whole[table].keys() & rows.keys():
                raise ValueError(f"{path.name} names {', '.join(sorted(twice))} once more")
            whole[table].update(rows)
    whole["models"].update({space.model: space.row() for space in workshops.built_in_spaces().values()})
    return whole


def price_table(settings: Settings) -> PriceTable:
    """The bundled prices with the operator's own over them."""
    own: Mapping[str, Any] = settings.tables.get("prices", {})
    rows = read_toml("prices.toml")
    return PriceTable({**rows, **{name: {**rows.get(name, {}), **row} for name, row in own.items()}})


@functools.cache
def templates() -> Templates:
    """The templates that come with the program, on the hardware that can be hired."""
    return Templates(read_toml("templates.toml"), HardwareShelf(read_toml("hardware.toml")))


def catalog(settings: Settings, prices: PriceTable, document: Mapping[str, Any] | None = None) -> Catalog:
    """The bundled catalogue, or the one of a document in its shape, as the operator's table changes it."""
    wished = settings.tables.get("engines", {})
    try:
        chosen = choosing.apply(document or models_document(), wished)
        for name, row in chosen["engines"].items():
            shared = _shared(chosen["engines"], row)
            row["options"] = {**_options(settings, row), **shared, **row.get("options", {})}
            if name in wished:
                wishes.check(name, row["factory"], row["options"])
    except (choosing.WrongChoice, wishes.WrongWish) as error:
        raise InvalidSetting(str(error)) from error
    return catalogs.build(chosen, prices, {"style-painter": NAMED_STYLES}, templates())


def _shared(rows: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The options that an engine has from others, as far as those have them."""
    return {
        option: rows[name]["options"][option]
        for name, options in row.get("shares", {}).items()
        for option in options
        if option in rows[name].get("options", {})
    }


def standings(settings: Settings, models: Catalog, clients: Clients) -> Standings:
    """Which engines can run here; `refresh` asks the servers among them."""
    looks = workshops.comfyui_is_asked(settings)
    probes: dict[str, Probe] = {"comfyui": ComfyStandings(clients.upstream, looks=looks)}
    return Standings(
        models.engines(), lambda name: provider_key(settings, name), settings.data_dir / "weights", probes
    )


def _options(settings: Settings, row: Mapping[str, Any]) -> dict[str, Any]:
    """What an engine's row gets from the settings."""
    if row.get("family"):  # where `engines add` puts what it fetched
        limit = {"limit_seconds": settings.training_limit_seconds} if row.get("shares") else {}
        return {"weights": str(settings.data_dir / "weights" / row["family"]), **limit}
    if row["kind"] == "graph":
        return {"limit_seconds": settings.graph_limit_seconds}
    return {"url": settings.comfyui_url} if row["kind"] == "comfyui" else {}


def server_secret(data_dir: Path, name: str) -> bytes:
    """32 random bytes kept in `DATA/<name>`, made when they are first asked for (mode 0600)."""
    path = data_dir / name
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
    return path.read_bytes()


def open_database(settings: Settings) -> Database:
    """The server's database, brought to this program's schema."""
    return databases.open_database(settings.database_url, settings.data_dir / DATABASE)


def open_snapshot(settings: Settings) -> AbstractContextManager[TableReader]:
    """Every table as it stands now, for a backup."""
    return databases.open_snapshot(settings.database_url, settings.data_dir / DATABASE)


def open_loader(settings: Settings) -> Loader:
    """A new database that a backup fills."""
    return databases.open_loader(settings.database_url, settings.data_dir / DATABASE)


def open_keeper(settings: Settings) -> Keeper:
    """Whoever looks after the database's schema and health."""
    return databases.open_keeper(settings.database_url, settings.data_dir / DATABASE)


def open_memory(settings: Settings, database: Database, finder: Finder) -> Memory:
    """The memory of every account."""
    allowed = MemoryLimits(
        page_bytes=settings.memory_page_bytes,
        import_files=settings.memory_import_files,
        import_bytes=settings.memory_import_bytes,
        plans_enforced=settings.memory_plans == "enforced",
    )
    return Memory(database, allowed, settings.base_url, finder)


def open_finder(settings: Settings, database: Database) -> Finder:
    """The memory's search, with meaning where `sixfold engines add embeddings` has put MiniLM."""
    folder = settings.data_dir / "weights" / "embeddings"
    index = _when_used("sixfold.store.search.index:PageIndex")
    find = _when_used("sixfold.engines.text.minilm:find")
    shelf = Shelf(database, index, settings.memory_index_bytes)
    return Finder(database, shelf, lambda: find(folder) if folder.is_dir() else None)


def _when_used(target: str) -> Callable[..., Any]:
    """What `module:attribute` names, imported at its first call: numpy would cost each start 15 MB."""
    module, _, attribute = target.partition(":")

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), attribute)(*arguments)

    return call


def open_fetcher(settings: Settings) -> Fetcher:
    """The guarded way out."""
    try:
        allowed = AllowList.parse(settings.fetch_allow)
    except ValueError as error:
        raise InvalidSetting(f"fetch_allow has a network that is none: {error}") from error
    return Fetcher(allowed)


def open_blobs(settings: Settings) -> BlobStore:
    """Where content lies, by its hash: a folder of the data folder, or `SIXFOLD_BLOB_URL`."""
    return _open_store(settings, settings.blob_url, "store", by_content=True)


def open_uploads(settings: Settings) -> BlobStore:
    """Area C's bucket: a folder of the data folder unless `SIXFOLD_UPLOAD_URL` names another."""
    return _open_store(settings, settings.upload_url, "uploads", by_content=False)


def _open_store(settings: Settings, url: str, folder: str, *, by_content: bool) -> BlobStore:
    """The store at a URL; raises `InvalidSetting`, also where the extra `objects` is not installed."""
    if not url or url.startswith("file://"):
        return FileStore(Path(url.removeprefix("file://")) if url else settings.data_dir / folder)
    try:
        objects = importlib.import_module("sixfold.store.objects")
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"{url.partition(':')[0]}:// needs the extra: pip install 'sixfold[objects]'"
        ) from error
    longest = max(settings.run_limit_seconds, settings.graph_limit_seconds, settings.training_limit_seconds)
    keep_seconds = longest + _CACHE_MARGIN_SECONDS
    place = objects.Place(
        url=url,
        tables=settings.tables.get("buckets", {}),
        seconds=settings.blob_seconds,
        cache=Cache(settings.data_dir / "cache", Bounds(settings.blob_cache_bytes, keep_seconds)),
        ways=objects.Ways(by_content, settings.blob_link_seconds if by_content else 0),
    )
    try:
        store: BlobStore = objects.open_store(place)
    except ValueError as error:
        raise InvalidSetting(str(error)) from error
    return store


def build(settings: Settings, models_document: Mapping[str, Any] | None = None) -> Product:
    """The product, not yet running; `models_document` stands in for the bundled `data/models`."""
    failpoints = Failpoints(settings.failpoints)
    database = open_database(settings)
    blobs = open_blobs(settings)
    prices = price_table(settings)
    models = catalog(settings, prices, models_document)
    signer = Signer(server_secret(settings.data_dir, "server.key"))
    fetcher = open_fetcher(settings)
    clients = Clients(fetcher)
    standing = standings(settings, models, clients)
    media = Media(database, blobs, fetcher, probe_image, _limits(settings), measure_film)
    media.own_origins.add(settings.base_url)
    bus = Bus()
    finder = open_finder(settings, database)
    terms = Terms(settings.previews_allowed, standing=standing)
    rules = orders.Policy(settings.queue_limit, terms, settings.run_limit_seconds)
    road = Pipeline(database, models, media, bus, rules, failpoints)
    finisher = Finisher(database, media, signer, settings.max_attempts, failpoints)
    outside = ServerOutside(clients, lambda name: provider_key(settings, name))
    outside.children = PipelineChildren(road)
    graphs = outside.workshop = workshops.build(settings, database, media, signer, road, clients)
    images = workplaces.container_driver(settings, failpoints)
    places = workplaces.driver(settings, failpoints, outside, workplaces.Places(images, templates()))
    standing.probes["container"] = workplaces.container_standing(images)
    standing.told["sandbox"] = workplaces.sandbox_standing
    limits = workplaces.policy(settings, templates())
    relaying = relays.build(settings, database, media)
    outside.relay, outside.conversation = relaying.relay, talks.join(relaying.relay, road)
    standing.told["relay"] = lambda: _talking(relaying)
    workers = Supervisor(database, places, models.engines(), finisher, bus, limits)
    road.own.admit = lambda engines: (standing.admit(engines), workers.admit(engines))[-1]
    if isinstance(database, Shared) and settings.driver != "ray":  # a cluster's machines have their own
        workers.can = lambda engine: standing(engine).ready
    road.on_accepted = workers.accepted
    road.on_cancel = workers.cancel
    offer = Offer(models, templates(), terms, settings.session_limit)
    outbox = Outbox(database, fetcher)
    bus.watchers += [outbox.heard, *relaying.watchers]
    return Product(
        settings=settings,
        database=database,
        blobs=blobs,
        uploads=open_uploads(settings),
        catalog=models,
        templates=templates(),
        prices=prices,
        media=media,
        pipeline=road,
        supervisor=workers,
        outbox=outbox,
        spaces=(hub := gradio.build(settings, clients)),
        spaces_here=workplaces.hosted_spaces(settings, images, hub),
        shelf=own_files.build(settings, road.own, database),
        live=LiveSessions(database, places, offer, limits, workers.boot),
        standings=standing,
        clients=clients,
        fetcher=fetcher,
        signer=signer,
        bus=bus,
        memory=open_memory(settings, database, finder),
        neighbours=Neighbours(database, bus, workers) if isinstance(database, Shared) else None,
        finder=finder,
        relaying=relaying,
        checkout=Stripe(clients.upstream, settings),
        provider=OpenId(clients.upstream, settings),
        images=workplaces.Learning(images, settings.data_dir / "scratch"),
        deposits=Deposits(clients.upstream, database, settings.tables.get("deposits")),
        workshop=graphs,
    )


@asynccontextmanager
async def running(product: Product) -> AsyncIterator[Product]:
    """The product at work; drains and closes on the way out."""
    await product.pipeline.own.load()
    await product.standings.refresh()
    if product.neighbours is not None:
        await product.neighbours.start()
    await product.supervisor.start()
    await product.live.start(alone=product.neighbours is None)
    watcher = asyncio.create_task(_watch(product), name="standings")
    sweeper = asyncio.create_task(_sweep(product), name="sweep")
    telling = asyncio.create_task(product.outbox.run(), name="webhooks")
    depositing = asyncio.create_task(product.deposits.run(), name="deposits")
    await product.relaying.start(product.supervisor.boot)
    await product.finder.look()
    embedding = asyncio.create_task(product.finder.run(), name="embedding")
    shelving = asyncio.create_task(product.shelf.run(), name="own-models")
    try:
        yield product
    finally:
        watcher.cancel()
        sweeper.cancel()
        telling.cancel()
        await asyncio.wait({telling})
        depositing.cancel()
        embedding.cancel()
        shelving.cancel()
        await asyncio.wait({shelving})
        product.pipeline.drain()
        await product.live.drain()
        await ended(product)
        await product.relaying.stop()
        if product.neighbours is not None:
            await product.neighbours.stop()
        await product.clients.aclose()
        await product.database.close()


async def ended(product: Product) -> None:
    """Let what runs finish and those who wait hear of it, within the time for that; then end all workers."""
    seconds = product.settings.drain_seconds
    await asyncio.gather(product.supervisor.drain(seconds), product.pipeline.waiters.stay(seconds))
    await product.supervisor.stop()  # what still runs is back in the queue before anybody is let go
    product.pipeline.waiters.let_go()


def probe_image(path: Path) -> tuple[str, int, int]:
    """Content type, width and height that an image claims; raises `BadRequest`, also where it breaks off."""
    try:
        name, width, height = headers.probe(path)
        endings.check(path, name)
    except headers.UnreadableImage as error:
        raise errors.BadRequest(str(error)) from error
    return _FORMATS.get(name, f"image/{name.lower()}"), width, height


def measure_film(path: Path, wanted: str) -> float | None:
    """How long a film or a sound says that it is; raises `BadRequest` for none, and for half a film."""
    try:
        film_endings.check(path, wanted)
        return film_headers.seconds(path, wanted)
    except UnusableInput as error:
        raise errors.BadRequest(str(error)) from error


def _talking(relaying: Relaying) -> Standing:
    """Whether a language model can be asked."""
    count = len(relaying.relay.router.upstreams())
    return Standing(count > 0, f"{count} model servers" if count else "no model server is known")


async def _watch(product: Product) -> None:
    """See weights, servers and keys come and go."""
    while True:
        await product.workshop.look()
        await asyncio.sleep(_LOOK_SECONDS)
        await product.standings.refresh()


def leaving_of(product: Product) -> Leaving:
    """Ends what accounts that leave still have, and erases them."""
    ends = product.pipeline.cancel, product.live.close, product.checkout.end
    return Leaving(product.database, product.uploads, *ends)


async def _sweep(product: Product) -> None:
    leaving = leaving_of(product)
    while True:
        await asyncio.sleep(60)
        with contextlib.suppress(errors.StoreFailed):
            await product.media.sweep()
            await product.database.write(sweeping.sweep(), durable=False)
            await product.outbox.sweep()
            await product.workshop.names.sweep()
            await leaving.sweep()


def _limits(settings: Settings) -> Limits:
    staging = settings.data_dir / "scratch"
    staging.mkdir(parents=True, exist_ok=True)
    return Limits(
        image_bytes=settings.fetch_image_bytes,
        image_pixels=settings.fetch_image_pixels,
        fetch_seconds=settings.fetch_seconds,
        quota_bytes=settings.upload_quota_bytes,
        upload_life_us=settings.upload_life_days * DAY_US,
        film_bytes=settings.fetch_film_bytes,
        film_seconds=60 * settings.fetch_film_minutes,
        film_fetch_seconds=settings.fetch_film_seconds,
        staging=staging,
    )
