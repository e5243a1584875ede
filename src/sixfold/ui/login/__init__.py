"""Sign-in with password, link, passkey or OpenID Connect, and the OAuth consent page."""
