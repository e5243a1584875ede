-- Adds idempotency keys of calls of the gateway.
-- Which call a request with an Idempotency-Key made, so that one that is asked again is not paid again.
CREATE TABLE relay_once (
    id         TEXT COLLATE "C" PRIMARY KEY,
    call_id    TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);
