DROP INDEX account_credit_requests;
ALTER TABLE account DROP COLUMN credit_requested_at;
