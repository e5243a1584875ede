-- Adds batches of calls.
-- Batches of calls: `outcome` is the state in which a batch is to end, once it is decided. A line names the bytes of its
-- request in the batch's input, and is leased by the server that runs it.
CREATE TABLE batch (
    id             TEXT PRIMARY KEY,
    account_id     TEXT NOT NULL REFERENCES account (id),
    credential_id  TEXT,
    key_id         TEXT,
    grant_id       TEXT,
    dialect        TEXT NOT NULL CHECK (dialect IN ('openai', 'anthropic')),
    endpoint       TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('validating', 'in_progress', 'finalizing', 'cancelling', 'completed',
                                                  'failed', 'expired', 'cancelled')),
    outcome        TEXT CHECK (outcome IN ('completed', 'failed', 'expired', 'cancelled')),
    input_file_id  TEXT,
    input_media    TEXT NOT NULL,
    metadata       TEXT NOT NULL,
    headers        TEXT NOT NULL,
    output_seconds INTEGER,
    total          INTEGER NOT NULL DEFAULT 0,
    succeeded      INTEGER NOT NULL DEFAULT 0,
    failed         INTEGER NOT NULL DEFAULT 0,
    errors         TEXT NOT NULL DEFAULT '[]',
    output_file_id TEXT,
    error_file_id  TEXT,
    holder         TEXT,
    lease_until    INTEGER,
    claimed_at     INTEGER NOT NULL DEFAULT 0,
    resume_at      INTEGER NOT NULL DEFAULT 0,
    waiting_for    TEXT,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    in_progress_at INTEGER,
    finalizing_at  INTEGER,
    cancelling_at  INTEGER,
    ended_at       INTEGER
) STRICT;
CREATE INDEX batch_account ON batch (account_id, id);
CREATE INDEX batch_open ON batch (claimed_at) WHERE ended_at IS NULL;
CREATE INDEX batch_ended ON batch (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE batch_line (
    batch_id    TEXT NOT NULL REFERENCES batch (id),
    number      INTEGER NOT NULL,
    custom_id   TEXT NOT NULL,
    start       INTEGER NOT NULL,
    length      INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('pending', 'running', 'done')),
    tries       INTEGER NOT NULL DEFAULT 0,
    attempt     INTEGER NOT NULL DEFAULT 0,
    ready_at    INTEGER NOT NULL DEFAULT 0,
    holder      TEXT,
    lease_until INTEGER,
    status      INTEGER,
    request_id  TEXT,
    response    TEXT,
    PRIMARY KEY (batch_id, number)
) STRICT;
CREATE INDEX batch_line_pending ON batch_line (batch_id, tries, number) WHERE state = 'pending';
CREATE INDEX batch_line_running ON batch_line (batch_id, holder) WHERE state = 'running';
CREATE INDEX batch_line_status ON batch_line (batch_id, status);
