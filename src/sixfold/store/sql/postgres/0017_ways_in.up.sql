-- Adds passkeys and identities at OpenID providers.
-- Ways to sign in beside a password: passkeys, and identities at an OpenID provider. A ceremony is one of these
-- under way; whoever ends it takes it away. A sign-in says how and from where it was made; `closing_at` is when
-- an account and all that belongs to it will be erased.
CREATE TABLE passkey (
    id         TEXT COLLATE "C" PRIMARY KEY,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    credential BYTEA NOT NULL UNIQUE,
    public_key BYTEA NOT NULL,
    uses       BIGINT NOT NULL,
    name       TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    used_at    BIGINT
);
CREATE INDEX passkey_account ON passkey (account_id);

CREATE TABLE identity (
    issuer     TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    email      TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identity_account ON identity (account_id);

CREATE TABLE ceremony (
    token_hash BYTEA PRIMARY KEY,
    kind       TEXT COLLATE "C" NOT NULL,
    content    TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL
);

ALTER TABLE signin ADD COLUMN id TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE signin ADD COLUMN way TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE signin ADD COLUMN agent TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX signin_account ON signin (account_id);
CREATE INDEX audit_account ON audit (account_id, id);
ALTER TABLE account ADD COLUMN closing_at BIGINT;
CREATE INDEX account_closing ON account (closing_at) WHERE closing_at IS NOT NULL;
