-- Adds passkeys and identities at OpenID providers.
-- Ways to sign in beside a password: passkeys, and identities at an OpenID provider. A ceremony is one of these
-- under way; whoever ends it takes it away. A sign-in says how and from where it was made; `closing_at` is when
-- an account and all that belongs to it will be erased.
CREATE TABLE passkey (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    credential BLOB NOT NULL UNIQUE,
    public_key BLOB NOT NULL,
    uses       INTEGER NOT NULL,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER
) STRICT;
CREATE INDEX passkey_account ON passkey (account_id);

CREATE TABLE identity (
    issuer     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES account (id),
    email      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (issuer, subject)
) STRICT;
CREATE INDEX identity_account ON identity (account_id);

CREATE TABLE ceremony (
    token_hash BLOB PRIMARY KEY,
    kind       TEXT NOT NULL,
    content    TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

ALTER TABLE signin ADD COLUMN id TEXT NOT NULL DEFAULT '';
ALTER TABLE signin ADD COLUMN way TEXT NOT NULL DEFAULT '';
ALTER TABLE signin ADD COLUMN agent TEXT NOT NULL DEFAULT '';
CREATE INDEX signin_account ON signin (account_id);
CREATE INDEX audit_account ON audit (account_id, id);
ALTER TABLE account ADD COLUMN closing_at INTEGER;
CREATE INDEX account_closing ON account (closing_at) WHERE closing_at IS NOT NULL;
