"""Sign-in of users and clients: login sessions, passkeys, OpenID Connect, and OAuth."""
