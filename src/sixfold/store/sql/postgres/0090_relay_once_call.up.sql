-- Adds an index of the calls with an Idempotency-Key, so that the end of a call does not scan all of them.
CREATE INDEX relay_once_call ON relay_once (call_id);
