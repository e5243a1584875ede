-- Adds the bytes of large inputs of runs, with an index of those of free and unsuccessful runs.
ALTER TABLE prediction ADD COLUMN input_bytes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX prediction_input_bytes ON prediction (account_id, input_bytes)
    WHERE input_bytes > 0 AND (price = 0 OR state IN ('failed', 'canceled', 'expired'));
