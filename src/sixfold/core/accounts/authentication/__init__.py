"""How users and programs sign in: login sessions, passkeys, OpenID Connect, and OAuth for programs."""
