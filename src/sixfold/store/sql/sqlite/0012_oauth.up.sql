-- Adds OAuth clients and grants.
-- Doors for hosted assistants (OAuth 2.1): programs that registered themselves, and what people granted them.
-- A grant begins with a code that is taken once; then it has a refresh token and one key at a time.
CREATE TABLE oauth_client (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    redirect_uris TEXT NOT NULL,
    created_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE oauth_grant (
    id            TEXT PRIMARY KEY,
    client_id     TEXT NOT NULL REFERENCES oauth_client (id),
    account_id    TEXT NOT NULL REFERENCES account (id),
    scopes        TEXT NOT NULL,
    redirect_uri  TEXT NOT NULL,
    challenge     TEXT NOT NULL,
    code_hash     BLOB NOT NULL UNIQUE,
    code_taken_at INTEGER,
    refresh_hash  BLOB UNIQUE,
    spent_hash    BLOB,
    key_id        TEXT,
    expires_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    created_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX oauth_grant_client ON oauth_grant (client_id);
CREATE INDEX oauth_grant_spent ON oauth_grant (spent_hash) WHERE spent_hash IS NOT NULL;
