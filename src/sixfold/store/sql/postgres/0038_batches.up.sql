-- Adds batches of calls.
-- Batches of calls: `outcome` is the state in which a batch is to end, once it is decided. A line names the bytes of its
-- request in the batch's input, and is leased by the server that runs it.
CREATE TABLE batch (
    id             TEXT COLLATE "C" PRIMARY KEY,
    account_id     TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    credential_id  TEXT COLLATE "C",
    key_id         TEXT COLLATE "C",
    grant_id       TEXT COLLATE "C",
    dialect        TEXT COLLATE "C" NOT NULL CHECK (dialect IN ('openai', 'anthropic')),
    endpoint       TEXT COLLATE "C" NOT NULL,
    state          TEXT COLLATE "C" NOT NULL CHECK (state IN ('validating', 'in_progress', 'finalizing', 'cancelling', 'completed',
                                                  'failed', 'expired', 'cancelled')),
    outcome        TEXT COLLATE "C" CHECK (outcome IN ('completed', 'failed', 'expired', 'cancelled')),
    input_file_id  TEXT COLLATE "C",
    input_media    TEXT COLLATE "C" NOT NULL,
    metadata       TEXT COLLATE "C" NOT NULL,
    headers        TEXT COLLATE "C" NOT NULL,
    output_seconds BIGINT,
    total          BIGINT NOT NULL DEFAULT 0,
    succeeded      BIGINT NOT NULL DEFAULT 0,
    failed         BIGINT NOT NULL DEFAULT 0,
    errors         TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    output_file_id TEXT COLLATE "C",
    error_file_id  TEXT COLLATE "C",
    holder         TEXT COLLATE "C",
    lease_until    BIGINT,
    claimed_at     BIGINT NOT NULL DEFAULT 0,
    resume_at      BIGINT NOT NULL DEFAULT 0,
    waiting_for    TEXT COLLATE "C",
    created_at     BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL,
    in_progress_at BIGINT,
    finalizing_at  BIGINT,
    cancelling_at  BIGINT,
    ended_at       BIGINT
);
CREATE INDEX batch_account ON batch (account_id, id);
CREATE INDEX batch_open ON batch (claimed_at) WHERE ended_at IS NULL;
CREATE INDEX batch_ended ON batch (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE batch_line (
    batch_id    TEXT COLLATE "C" NOT NULL REFERENCES batch (id),
    number      BIGINT NOT NULL,
    custom_id   TEXT COLLATE "C" NOT NULL,
    start       BIGINT NOT NULL,
    length      BIGINT NOT NULL,
    state       TEXT COLLATE "C" NOT NULL CHECK (state IN ('pending', 'running', 'done')),
    tries       BIGINT NOT NULL DEFAULT 0,
    attempt     BIGINT NOT NULL DEFAULT 0,
    ready_at    BIGINT NOT NULL DEFAULT 0,
    holder      TEXT COLLATE "C",
    lease_until BIGINT,
    status      BIGINT,
    request_id  TEXT COLLATE "C",
    response    TEXT COLLATE "C",
    PRIMARY KEY (batch_id, number)
);
CREATE INDEX batch_line_pending ON batch_line (batch_id, tries, number) WHERE state = 'pending';
CREATE INDEX batch_line_running ON batch_line (batch_id, holder) WHERE state = 'running';
CREATE INDEX batch_line_status ON batch_line (batch_id, status);
