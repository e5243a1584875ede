-- Creates accounts, the ledger, API keys, predictions and media files.
-- Times are epoch µs, money is micro-dollars.

CREATE TABLE account (
    id              TEXT PRIMARY KEY,
    kind            TEXT NOT NULL CHECK (kind IN ('customer', 'operator', 'system')),
    email           TEXT UNIQUE,
    can_go_negative INTEGER NOT NULL DEFAULT 0,
    posted          INTEGER NOT NULL DEFAULT 0,
    held            INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0),
    plan            TEXT NOT NULL DEFAULT 'free',
    password_hash   TEXT,
    webhook_secret  TEXT,
    created_at      INTEGER NOT NULL,
    CONSTRAINT funds CHECK (can_go_negative = 1 OR posted - held >= 0)
) STRICT;

CREATE TABLE hold (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    amount     INTEGER NOT NULL CHECK (amount > 0),
    captured   INTEGER NOT NULL DEFAULT 0 CHECK (captured >= 0 AND captured <= amount),
    state      TEXT NOT NULL CHECK (state IN ('pending', 'captured', 'released')),
    created_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT;
CREATE INDEX hold_pending ON hold (account_id) WHERE state = 'pending';

CREATE TABLE transfer (
    id          TEXT PRIMARY KEY,
    debit       TEXT NOT NULL REFERENCES account (id),
    credit      TEXT NOT NULL REFERENCES account (id),
    amount      INTEGER NOT NULL CHECK (amount > 0),
    hold_id     TEXT UNIQUE REFERENCES hold (id),
    kind        TEXT NOT NULL,
    description TEXT NOT NULL,
    request_id  TEXT,
    created_at  INTEGER NOT NULL,
    CHECK (debit <> credit)
) STRICT;
CREATE INDEX transfer_debit ON transfer (debit, created_at, id);
CREATE INDEX transfer_credit ON transfer (credit, created_at, id);

CREATE TRIGGER transfer_is_immutable BEFORE UPDATE OF debit, credit, amount, hold_id, created_at ON transfer
BEGIN SELECT RAISE(ABORT, 'a transfer is immutable'); END;
CREATE TRIGGER transfer_stays BEFORE DELETE ON transfer
BEGIN SELECT RAISE(ABORT, 'a transfer is never deleted'); END;

CREATE TABLE api_key (
    id         TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    hash       BLOB NOT NULL UNIQUE,
    hint       TEXT NOT NULL,
    scope      TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT;
CREATE INDEX api_key_account ON api_key (account_id);

CREATE TABLE signin (
    token_hash BLOB PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES account (id),
    kind       TEXT NOT NULL CHECK (kind IN ('link', 'session')),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE idempotency (
    id         TEXT PRIMARY KEY,
    body_hash  BLOB NOT NULL,
    boot       TEXT NOT NULL,
    status     INTEGER,
    headers    TEXT,
    body       BLOB,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE prediction (
    id             TEXT PRIMARY KEY,
    account_id     TEXT NOT NULL REFERENCES account (id),
    job_id         TEXT UNIQUE,
    request_id     TEXT NOT NULL,
    idempotency_id TEXT UNIQUE,
    parent_id      TEXT,
    face           TEXT NOT NULL,
    model          TEXT NOT NULL,
    engine         TEXT NOT NULL,
    engine_version TEXT,
    quality        TEXT NOT NULL,
    output_kind    TEXT NOT NULL,
    inputs         TEXT NOT NULL,
    task           TEXT NOT NULL,
    fingerprint    BLOB NOT NULL,
    origin_id      TEXT NOT NULL,
    state          TEXT NOT NULL,
    attempt        INTEGER NOT NULL DEFAULT 0,
    holder         TEXT,
    lease_until    INTEGER,
    price          INTEGER NOT NULL,
    credits        INTEGER NOT NULL,
    cost           INTEGER NOT NULL DEFAULT 0,
    output         TEXT,
    error          TEXT,
    error_kind     TEXT,
    logs           TEXT NOT NULL DEFAULT '',
    priced_us      INTEGER NOT NULL DEFAULT 0,
    cold_start_us  INTEGER NOT NULL DEFAULT 0,
    run_us         INTEGER NOT NULL DEFAULT 0,
    stored_us      INTEGER NOT NULL DEFAULT 0,
    stored_bytes   INTEGER NOT NULL DEFAULT 0,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    completed_at   INTEGER
) STRICT;
CREATE INDEX prediction_queue ON prediction (engine, created_at, id) WHERE state = 'queued';
CREATE INDEX prediction_waiting ON prediction (model) WHERE state = 'queued';
CREATE INDEX prediction_leased ON prediction (lease_until)
    WHERE state IN ('starting', 'running', 'canceling');
CREATE INDEX prediction_account ON prediction (account_id, id);
CREATE INDEX prediction_fingerprint ON prediction (account_id, fingerprint, id);

CREATE TABLE media (
    name          TEXT PRIMARY KEY,
    account_id    TEXT NOT NULL REFERENCES account (id),
    blob          TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('output', 'upload', 'input')),
    content_type  TEXT NOT NULL,
    size          INTEGER NOT NULL,
    sha256        TEXT,
    prediction_id TEXT,
    upload_id     TEXT UNIQUE,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER
) STRICT;
CREATE INDEX media_account ON media (account_id, kind);
CREATE INDEX media_blob ON media (blob);

CREATE TABLE audit (
    id         TEXT PRIMARY KEY,
    account_id TEXT,
    action     TEXT NOT NULL,
    detail     TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

INSERT INTO account (id, kind, can_go_negative, created_at) VALUES
    ('world', 'system', 1, 0),
    ('revenue', 'system', 1, 0);
