-- Adds whether an operator closed an account, which only an operator can then reopen.
ALTER TABLE account ADD COLUMN closed_by_operator BIGINT NOT NULL DEFAULT 0;
