"""Sign-in of users and programs: login sessions, passkeys, OpenID Connect, and OAuth for programs."""
