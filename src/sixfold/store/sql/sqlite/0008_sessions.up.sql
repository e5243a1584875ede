-- Adds live sessions.
-- Each slice of one is a hold `<session>:<number>`; `slice_amount` is 0 while none is pending.
CREATE TABLE session (
    id           TEXT PRIMARY KEY,
    account_id   TEXT NOT NULL REFERENCES account (id),
    request_id   TEXT NOT NULL,
    model        TEXT NOT NULL,
    engine       TEXT NOT NULL,
    quality      TEXT NOT NULL,
    hardware     TEXT NOT NULL,
    inputs       TEXT NOT NULL,
    fps          INTEGER NOT NULL,
    rate         INTEGER NOT NULL,
    idle_us      INTEGER NOT NULL,
    token_hash   BLOB NOT NULL,
    resume_hash  BLOB NOT NULL,
    state        TEXT NOT NULL,
    reason       TEXT,
    holder       TEXT NOT NULL,
    lease_until  INTEGER NOT NULL,
    slice        INTEGER NOT NULL DEFAULT 0,
    slice_amount INTEGER NOT NULL DEFAULT 0,
    slice_at     INTEGER,
    cost         INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    ready_at     INTEGER,
    closed_at    INTEGER
) STRICT;
CREATE INDEX session_account ON session (account_id, id);
CREATE INDEX session_open ON session (lease_until) WHERE closed_at IS NULL;
