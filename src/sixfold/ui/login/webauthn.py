"""WebAuthn: the options for browsers and the verification of their responses.

Sign-in needs a passkey only, so user verification is required and the credential is discoverable (resident).
Importing the library takes 0.1 s and 6 MB, so `passkeys` imports this module on first use.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import webauthn
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url, options_to_json_dict
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from sixfold.core.accounts.authentication.passkeys import RelyingParty

_MUST = UserVerificationRequirement.REQUIRED
_CHALLENGE_BYTES = 32
_NOT_THESE = (WebAuthnException, ValueError, TypeError, KeyError, AttributeError, EOFError)


class WebAuthnError(Exception):
    """Raised for an invalid response; the message is the reason."""


@dataclass(frozen=True, slots=True)
class NewPasskey:
    """A verified new passkey; `uses` is its signature counter."""

    credential: bytes
    public_key: bytes
    uses: int


def challenge() -> bytes:
    """Return random bytes that the response must sign."""
    return secrets.token_bytes(_CHALLENGE_BYTES)


def creation(
    place: RelyingParty, account_id: str, email: str, asked: bytes, existing: Iterable[bytes]
) -> dict[str, Any]:
    """Return the registration options for the browser as JSON."""
    options = webauthn.generate_registration_options(
        rp_id=place.name,
        rp_name="Sixfold",
        user_id=account_id.encode(),
        user_name=email,
        challenge=asked,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED, require_resident_key=True, user_verification=_MUST
        ),
        exclude_credentials=[PublicKeyCredentialDescriptor(id=known) for known in existing],
    )
    return options_to_json_dict(options)


def question(place: RelyingParty, asked: bytes) -> dict[str, Any]:
    """Return the authentication options for the browser as JSON."""
    options = webauthn.generate_authentication_options(
        rp_id=place.name, challenge=asked, user_verification=_MUST
    )
    return options_to_json_dict(options)


def made(place: RelyingParty, asked: bytes, answer: dict[str, Any]) -> NewPasskey:
    """Verify a registration response and return the new passkey; raises `WebAuthnError`."""
    try:
        found = webauthn.verify_registration_response(
            credential=answer,
            expected_challenge=asked,
            expected_rp_id=place.name,
            expected_origin=place.origin,
            require_user_verification=True,
        )
    except _NOT_THESE as error:
        raise WebAuthnError(str(error)) from error
    return NewPasskey(found.credential_id, found.credential_public_key, found.sign_count)


def credential(answer: dict[str, Any]) -> bytes:
    """Return the credential ID of a response; raises `WebAuthnError`."""
    try:
        return base64url_to_bytes(answer["id"])
    except _NOT_THESE as error:
        raise WebAuthnError("it has no credential ID") from error


def holder(answer: dict[str, Any]) -> str:
    """Return the account ID (user handle) of a response, or an empty string."""
    try:
        return base64url_to_bytes(answer["response"]["userHandle"] or "").decode()
    except _NOT_THESE:
        return ""


def used(place: RelyingParty, asked: bytes, answer: dict[str, Any], public_key: bytes, uses: int) -> int:
    """Verify an authentication response and return the new signature counter; raises `WebAuthnError`."""
    try:
        found = webauthn.verify_authentication_response(
            credential=answer,
            expected_challenge=asked,
            expected_rp_id=place.name,
            expected_origin=place.origin,
            credential_public_key=public_key,
            credential_current_sign_count=uses,
            require_user_verification=True,
        )
    except _NOT_THESE as error:
        raise WebAuthnError(str(error)) from error
    return found.new_sign_count


def text(challenge_bytes: bytes) -> str:
    """Return a challenge as base64url text."""
    return bytes_to_base64url(challenge_bytes)


def unwrapped(kept: str) -> bytes:
    """Return the bytes of a base64url challenge."""
    return base64url_to_bytes(kept)
