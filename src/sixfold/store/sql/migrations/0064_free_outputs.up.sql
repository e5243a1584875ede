-- Lets the bytes of an account's free runs be summed from the index alone.
CREATE INDEX prediction_free_bytes ON prediction (account_id, stored_bytes) WHERE price = 0 AND stored_bytes > 0;
