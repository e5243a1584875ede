"""WebAuthn: the options for browsers and the verification of their responses.

Sign-in needs a passkey only, so user verification is required and the credential is discoverable (resident).
Importing the library takes 0.1 s and 6 MB, so `passkeys` imports this module on first use.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec
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

_VERIFICATION = UserVerificationRequirement.REQUIRED
_CHALLENGE_BYTES = 32
_INVALID = (WebAuthnException, ValueError, TypeError, KeyError, AttributeError, EOFError)


class WebAuthnError(Exception):
    """Raised for an invalid response; the message is the reason."""


class NewPasskey(msgspec.Struct, frozen=True):
    """A verified new passkey with its signature counter."""

    credential: bytes
    public_key: bytes
    sign_count: int


def new_challenge() -> bytes:
    """Return random bytes that the response must sign."""
    return secrets.token_bytes(_CHALLENGE_BYTES)


def registration_options(
    relying_party: RelyingParty, account_id: str, email: str, challenge: bytes, existing: Iterable[bytes]
) -> dict[str, Any]:
    """Return the registration options for the browser as JSON."""
    options = webauthn.generate_registration_options(
        rp_id=relying_party.name,
        rp_name="Sixfold",
        user_id=account_id.encode(),
        user_name=email,
        challenge=challenge,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED,
            require_resident_key=True,
            user_verification=_VERIFICATION,
        ),
        exclude_credentials=[PublicKeyCredentialDescriptor(id=credential) for credential in existing],
    )
    return options_to_json_dict(options)


def authentication_options(relying_party: RelyingParty, challenge: bytes) -> dict[str, Any]:
    """Return the authentication options for the browser as JSON."""
    options = webauthn.generate_authentication_options(
        rp_id=relying_party.name, challenge=challenge, user_verification=_VERIFICATION
    )
    return options_to_json_dict(options)


def verify_registration(
    relying_party: RelyingParty, challenge: bytes, response: dict[str, Any]
) -> NewPasskey:
    """Verify a registration response and return the new passkey; raises `WebAuthnError`."""
    try:
        verification = webauthn.verify_registration_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=relying_party.name,
            expected_origin=relying_party.origin,
            require_user_verification=True,
        )
    except _INVALID as error:
        raise WebAuthnError(str(error)) from error
    return NewPasskey(verification.credential_id, verification.credential_public_key, verification.sign_count)


def credential_id(response: dict[str, Any]) -> bytes:
    """Return the credential ID of a response; raises `WebAuthnError`."""
    try:
        return base64url_to_bytes(response["id"])
    except _INVALID as error:
        raise WebAuthnError("it has no credential ID") from error


def user_handle(response: dict[str, Any]) -> str:
    """Return the account ID (user handle) of a response, or an empty string."""
    try:
        return base64url_to_bytes(response["response"]["userHandle"] or "").decode()
    except _INVALID:
        return ""


def verify_authentication(
    relying_party: RelyingParty,
    challenge: bytes,
    response: dict[str, Any],
    public_key: bytes,
    sign_count: int,
) -> int:
    """Verify an authentication response and return the new signature counter; raises `WebAuthnError`."""
    try:
        verification = webauthn.verify_authentication_response(
            credential=response,
            expected_challenge=challenge,
            expected_rp_id=relying_party.name,
            expected_origin=relying_party.origin,
            credential_public_key=public_key,
            credential_current_sign_count=sign_count,
            require_user_verification=True,
        )
    except _INVALID as error:
        raise WebAuthnError(str(error)) from error
    return verification.new_sign_count


def encode(challenge: bytes) -> str:
    """Return a challenge as base64url text."""
    return bytes_to_base64url(challenge)


def decode(text: str) -> bytes:
    """Return the bytes of a base64url challenge."""
    return base64url_to_bytes(text)
