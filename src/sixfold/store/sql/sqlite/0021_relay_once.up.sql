-- Adds idempotency keys of calls of the gateway.
-- Which call a request with an Idempotency-Key made, so that one that is asked again is not paid again.
CREATE TABLE relay_once (
    id         TEXT PRIMARY KEY,
    call_id    TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
