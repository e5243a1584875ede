-- Lets claims read the queue in its order, however full it was when PostgreSQL planned them.
-- Both indexes of queued predictions are empty most of the time, and the statement of claims is planned then. It could
-- use either, and with `prediction_waiting` it read and sorted the whole queue each time. It does not match any more,
-- because the condition is written in another way, as in the statement that counts.
DROP INDEX prediction_waiting;
CREATE INDEX prediction_waiting ON prediction (model) WHERE state || '' = 'queued';

-- Each run leaves two dead rows of its prediction and one of its hold.
ALTER TABLE prediction SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
ALTER TABLE hold SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);
