-- Adds the time at which a user asked the operator for credit.
ALTER TABLE account ADD COLUMN credit_requested_at INTEGER;
CREATE INDEX account_credit_requests ON account (credit_requested_at) WHERE credit_requested_at IS NOT NULL;
