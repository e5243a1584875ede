-- Adds an index of the failed, canceled and expired predictions of an account, which lists by state read.
CREATE INDEX prediction_unsuccessful ON prediction (account_id, state, id)
    WHERE state IN ('failed', 'canceled', 'expired');
