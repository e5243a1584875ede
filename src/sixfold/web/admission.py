"""The limits of one server on what callers may have open and how often they may ask."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from sixfold.settings import Settings
from sixfold.web.rates import RequestRates
from sixfold.web.slots import Slots
from sixfold.web.trusted_hosts import TrustedHosts


class Admission:
    """Built once from the settings, and shared by the dispatcher and all that opens a stream."""

    def __init__(self, settings: Settings, origins: TrustedHosts) -> None:
        self._origins = origins
        self.accounts = RequestRates(settings.requests_per_second_per_account, "An account")
        self._keyless = RequestRates(settings.requests_per_second_per_peer, "An address without a valid key")
        self.websockets = Slots(
            "websockets", "websockets", settings.websockets_per_account, settings.websockets
        )
        self.event_streams = Slots(
            "event_streams", "event streams", settings.event_streams_per_account, settings.event_streams
        )
        self.chat_streams = Slots("chat_streams", "streamed chats", settings.chat_streams_per_account)

    def event_stream(self, request: HTTPConnection, account_id: str) -> None:
        """Take a slot for an event stream until its request ends; raises what `Slots` raises."""
        self.event_streams.hold(request.scope, account_id)
        self.event_streams.enter(request.scope, account_id)

    def keyless(self, connection: HTTPConnection) -> None:
        """Count a request without a valid key against its address; raises `TooManyRequests`."""
        peer = self._origins.limited(connection)
        if peer is not None:
            self._keyless.spend(peer)
