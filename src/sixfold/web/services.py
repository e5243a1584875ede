"""What every face is built from: core's parts, and HTTP's checks of keys, sessions and origins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sixfold.core.accounts.connections import Connections
from sixfold.core.accounts.deposits import TokenDeposits
from sixfold.core.accounts.identities import Provider
from sixfold.core.accounts.payments import Checkout
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.belongings.closing import Leaving
from sixfold.core.database import Database
from sixfold.core.gateway.gateway import Relay
from sixfold.core.gateway.stored_responses import Shelf as KeptResponses
from sixfold.core.media.ports import BlobStore, OutputFile
from sixfold.core.memory.memory import Memory
from sixfold.core.work.availability import Survey
from sixfold.core.work.catalog import Catalog
from sixfold.core.work.history import Histories
from sixfold.core.work.images import Images
from sixfold.core.work.manifest.signing import Signer
from sixfold.core.work.media import MEDIA_PATH, Media
from sixfold.core.work.outbox import Outbox
from sixfold.core.work.pipeline import Pipeline
from sixfold.core.work.quotes import Times
from sixfold.core.work.sessions_host import LiveSessions
from sixfold.core.work.spaces import Spaces, SpacesHere
from sixfold.core.work.supervisor import Supervisor
from sixfold.core.work.templates import Templates
from sixfold.core.workflows.service import Workshop
from sixfold.settings import Settings
from sixfold.web.admission import Admission
from sixfold.web.auth import Doors
from sixfold.web.idempotency import Repeats
from sixfold.web.origin import Origins
from sixfold.web.sessions import Sessions
from sixfold.web.trusted_browsers import TrustedBrowsers


@dataclass(frozen=True, slots=True)
class Services:
    """Handed to every face by `app/asgi.py`."""

    settings: Settings
    database: Database
    blobs: BlobStore
    uploads: BlobStore
    catalog: Catalog
    templates: Templates
    media: Media
    pipeline: Pipeline
    supervisor: Supervisor
    times: Times
    histories: Histories
    outbox: Outbox
    webhook_secrets: WebhookSecrets
    spaces: Spaces
    spaces_here: SpacesHere
    own_faults: Mapping[str, str]  # what is wrong with files of own models, by their names
    live: LiveSessions
    origins: Origins
    admission: Admission
    doors: Doors
    sessions: Sessions
    trusted_browsers: TrustedBrowsers
    repeats: Repeats
    memory: Memory
    relay: Relay
    responses: KeptResponses
    checkout: Checkout
    provider: Provider
    leaving: Leaving
    deposits: TokenDeposits
    images: Images
    workshop: Workshop
    signer: Signer
    survey: Survey
    connections: Connections

    def media_url(self, file: OutputFile) -> str:
        """The absolute URL of a stored file."""
        return f"{self.settings.base_url}{MEDIA_PATH}{file.name}"
