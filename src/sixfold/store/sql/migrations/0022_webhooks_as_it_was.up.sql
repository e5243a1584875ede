-- Adds the state of a prediction to each webhook message.
-- A webhook tells of a prediction as it was when the step happened, however late it is heard.
ALTER TABLE webhook_outbox ADD COLUMN prediction TEXT;
