"""WebAuthn: what a browser is asked about passkeys, and whether its answers are true.

A passkey alone signs in, so that its device has to check who holds it (user verification), and it is found
without a name (resident). Importing the library takes 0.1 s and 6 MB: `passkeys` does so at the first use.
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

from sixfold.core.accounts.passkeys import RelyingParty

_MUST = UserVerificationRequirement.REQUIRED
_CHALLENGE_BYTES = 32
_NOT_THESE = (WebAuthnException, ValueError, TypeError, KeyError, AttributeError, EOFError)


class WebAuthnError(Exception):
    """An answer that does not hold; the text says why."""


@dataclass(frozen=True, slots=True)
class NewPasskey:
    """A new passkey."""

    credential: bytes
    public_key: bytes
    uses: int


def challenge() -> bytes:
    """Fresh bytes that an answer has to sign."""
    return secrets.token_bytes(_CHALLENGE_BYTES)


def creation(
    place: RelyingParty, account_id: str, email: str, asked: bytes, existing: Iterable[bytes]
) -> dict[str, Any]:
    """What the browser is asked when a passkey is made, as JSON."""
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
    """What the browser is asked when somebody signs in, as JSON."""
    options = webauthn.generate_authentication_options(
        rp_id=place.name, challenge=asked, user_verification=_MUST
    )
    return options_to_json_dict(options)


def made(place: RelyingParty, asked: bytes, answer: dict[str, Any]) -> NewPasskey:
    """The passkey that an answer brings; raises `WebAuthnError`."""
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
    """Which passkey an answer says that it is of; raises `WebAuthnError`."""
    try:
        return base64url_to_bytes(answer["id"])
    except _NOT_THESE as error:
        raise WebAuthnError("it names no passkey") from error


def holder(answer: dict[str, Any]) -> str:
    """Whose passkey an answer says that it is; empty where it says nothing."""
    try:
        return base64url_to_bytes(answer["response"]["userHandle"] or "").decode()
    except _NOT_THESE:
        return ""


def used(place: RelyingParty, asked: bytes, answer: dict[str, Any], public_key: bytes, uses: int) -> int:
    """How often the passkey was used by now; raises `WebAuthnError`."""
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
    """A challenge as it is kept."""
    return bytes_to_base64url(challenge_bytes)


def unwrapped(kept: str) -> bytes:
    """A challenge that was kept."""
    return base64url_to_bytes(kept)
