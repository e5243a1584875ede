-- Adds background responses: a batch of one line whose reply is stored as the response `response_id`.
ALTER TABLE batch ADD COLUMN response_id TEXT;
CREATE UNIQUE INDEX batch_response ON batch (response_id) WHERE response_id IS NOT NULL;
