"""The services that every API uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from sixfold.core.account_data.deletion import AccountDeletion
from sixfold.core.accounts.authentication import access_checks
from sixfold.core.accounts.authentication.key_use import KeyUse
from sixfold.core.accounts.authentication.oidc_identities import OidcProvider
from sixfold.core.accounts.connections import Connections
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.payments import Checkout
from sixfold.core.accounts.rights import Rights
from sixfold.core.accounts.token_deposits import TokenDeposits
from sixfold.core.accounts.webhook_secrets import WebhookSecrets
from sixfold.core.batches.processor import BatchProcessor
from sixfold.core.batches.service import BatchService
from sixfold.core.catalog.availability import AvailabilitySurvey
from sixfold.core.catalog.custom_models import ImageInspector
from sixfold.core.catalog.gradio_spaces import GradioSpacePort, LocalSpaces
from sixfold.core.catalog.models import Catalog
from sixfold.core.catalog.templates import Templates
from sixfold.core.configuration.ports import (
    BackupService,
    ConfigurationService,
    EngineInstallService,
    ProviderKeyService,
)
from sixfold.core.database import Database, Transaction
from sixfold.core.files.files import AccountFiles
from sixfold.core.gallery import Gallery
from sixfold.core.gateway.attachments.document_texts import DocumentTexts
from sixfold.core.gateway.content_log.storage import ContentLog
from sixfold.core.gateway.conversations.conversations import ConversationStore
from sixfold.core.gateway.conversations.response_tasks import ResponseTasks
from sixfold.core.gateway.conversations.responses import CompactionCipher
from sixfold.core.gateway.conversations.responses import ResponseStore as KeptResponses
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.realtime.client_secrets import ClientSecretCipher
from sixfold.core.gateway.search.service import WebSearch
from sixfold.core.gateway.tools.servers import ToolServers
from sixfold.core.gpu.report import GpuReports
from sixfold.core.media.media import MEDIA_PATH, MediaService
from sixfold.core.media.ports import BlobStore, OutputFile
from sixfold.core.memory.facts.service import FactService
from sixfold.core.memory.service import MemoryService
from sixfold.core.predictions.admin_figures import DayFigures
from sixfold.core.predictions.duration_estimates import DurationEstimator
from sixfold.core.predictions.event_history import EventHistories
from sixfold.core.predictions.service import PredictionService
from sixfold.core.predictions.webhooks import WebhookOutbox
from sixfold.core.provenance.signing import Signer
from sixfold.core.secret_cipher import SecretCipher
from sixfold.core.sessions.service import SessionService
from sixfold.core.vector_stores.parts import VectorStoreParts
from sixfold.core.workers.scheduler import Scheduler
from sixfold.core.workflows.service import GraphService
from sixfold.settings import Settings
from sixfold.web.admission import Admission
from sixfold.web.auth import Authenticator, bearer_token
from sixfold.web.idempotency import IdempotencyGuard
from sixfold.web.sessions import SessionCookies, TrustedBrowsers
from sixfold.web.trusted_hosts import TrustedHosts

T = TypeVar("T")


class CoreServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that `app/bootstrap.py` builds and that every API receives."""

    settings: Settings
    database: Database
    blobs: BlobStore
    uploads: BlobStore
    catalog: Catalog
    templates: Templates
    media: MediaService
    files: AccountFiles
    document_texts: DocumentTexts
    vector_stores: VectorStoreParts
    batches: BatchService
    batch_processor: BatchProcessor
    predictions: PredictionService
    scheduler: Scheduler
    outbox: WebhookOutbox
    webhook_secrets: WebhookSecrets
    spaces: GradioSpacePort
    local_spaces: LocalSpaces
    live_sessions: SessionService
    signer: Signer
    memory: MemoryService
    checkout: Checkout
    oidc: OidcProvider
    deposits: TokenDeposits
    image_inspector: ImageInspector
    workflows: GraphService
    resources: AvailabilitySurvey
    connections: Connections
    key_use: KeyUse
    gpu: GpuReports
    web_search: WebSearch
    tool_servers: ToolServers

    def core_services(self) -> dict[str, Any]:
        """Return the services of this class by name, as arguments for the constructor of a subclass."""
        return {name: getattr(self, name) for name in CoreServices.__struct_fields__}


class WebServices(CoreServices, frozen=True, kw_only=True):
    """The services of core and of HTTP, passed to every API by `app/asgi.py`."""

    durations: DurationEstimator
    event_histories: EventHistories
    # The problems of custom model files, by file name.
    model_faults: Mapping[str, str]
    trusted_hosts: TrustedHosts
    admission: Admission
    authenticator: Authenticator
    sessions: SessionCookies
    trusted_browsers: TrustedBrowsers
    idempotency: IdempotencyGuard
    gallery: Gallery
    memory_facts: FactService
    gateway: Gateway
    responses: KeptResponses
    conversations: ConversationStore
    compactions: CompactionCipher
    client_secrets: ClientSecretCipher
    # Encrypts the tickets of URLs to which a file can be uploaded.
    upload_tickets: SecretCipher
    response_tasks: ResponseTasks
    # Creates the `thumbnail` or `spritesheet` of the video at a path; raises `UnusableInput`.
    video_stills: Callable[[str, str], bytes]
    account_deletion: AccountDeletion
    configuration: ConfigurationService
    provider_keys: ProviderKeyService
    installs: EngineInstallService
    backups: BackupService
    figures: DayFigures

    @property
    def content_log(self) -> ContentLog | None:
        """The log of the contents of gateway calls."""
        return None if self.gateway.contents is None else self.gateway.contents.log

    def media_url(self, file: OutputFile) -> str:
        return f"{self.settings.base_url}{MEDIA_PATH}{file.name}"


class ServiceHandlers:
    """Handlers of requests with the server's services."""

    def __init__(self, services: WebServices) -> None:
        self._services = services

    async def _enter(self, request: Request) -> Principal:
        """Return the caller of a request by its key; raises `Unauthenticated` and `Forbidden`."""
        return await self._services.authenticator.bearer(request)

    async def _enter_to_run(self, request: Request) -> Principal | None:
        """Return the caller, or None without a key that may run models."""
        if bearer_token(request) is None:
            return None
        principal = await self._enter(request)
        return principal if principal.has(Rights.RUN) else None

    async def _write(self, principal: Principal, transaction: Transaction[T]) -> T:
        """Run a transaction if the principal still has the access that the route requires."""
        return await self._services.database.write(access_checks.while_permitted(principal, transaction))
