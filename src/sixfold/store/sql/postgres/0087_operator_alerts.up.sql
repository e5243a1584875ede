-- Adds whether an operator created a cost alert, which its account then neither sees nor deletes.
ALTER TABLE cost_alert ADD COLUMN by_operator BIGINT NOT NULL DEFAULT 0;
