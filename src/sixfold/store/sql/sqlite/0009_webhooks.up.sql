-- Adds webhooks of predictions, and messages that are not delivered yet.
-- Whom a prediction's steps are told to, and what still has to be said. A message is written with the step itself.
ALTER TABLE prediction ADD COLUMN webhook TEXT;
CREATE TABLE webhook_outbox (
    id            TEXT PRIMARY KEY,
    prediction_id TEXT NOT NULL REFERENCES prediction (id),
    event         TEXT NOT NULL CHECK (event IN ('started', 'completed')),
    attempts      INTEGER NOT NULL DEFAULT 0,
    due_at        INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    error         TEXT,
    UNIQUE (prediction_id, event)
) STRICT;
CREATE INDEX webhook_due ON webhook_outbox (due_at) WHERE ended_at IS NULL;
