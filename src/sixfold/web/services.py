"""What every face is built from: core's parts, and HTTP's checks of keys, sessions and origins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sixfold.core.account_data.deletion import Leaving
from sixfold.core.accounts.connections import Connections
from sixfold.core.accounts.oidc_identities import Provider
from sixfold.core.accounts.payments import Checkout
from sixfold.core.accounts.token_deposits import TokenDeposits
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.catalog.availability import Survey
from sixfold.core.catalog.container_images import Images
from sixfold.core.catalog.gradio_spaces import Spaces, SpacesHere
from sixfold.core.catalog.models import Catalog
from sixfold.core.catalog.templates import Templates
from sixfold.core.database import Database
from sixfold.core.gateway.gateway import Relay
from sixfold.core.gateway.stored_responses import Shelf as KeptResponses
from sixfold.core.media.media import MEDIA_PATH, Media
from sixfold.core.media.ports import BlobStore, OutputFile
from sixfold.core.memory.service import Memory
from sixfold.core.predictions.duration_estimates import Times
from sixfold.core.predictions.event_history import Histories
from sixfold.core.predictions.service import Pipeline
from sixfold.core.predictions.webhooks import Outbox
from sixfold.core.provenance.signing import Signer
from sixfold.core.sessions.service import LiveSessions
from sixfold.core.workers.scheduler import Supervisor
from sixfold.core.workflows.service import Workshop
from sixfold.settings import Settings
from sixfold.web.admission import Admission
from sixfold.web.auth import Doors
from sixfold.web.idempotency import Repeats
from sixfold.web.sessions import Sessions
from sixfold.web.trusted_browsers import TrustedBrowsers
from sixfold.web.trusted_hosts import Origins


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
