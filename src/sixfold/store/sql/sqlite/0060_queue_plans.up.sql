-- Lets claims read the queue in its order, however full it was when PostgreSQL planned them.
DROP INDEX prediction_waiting;
CREATE INDEX prediction_waiting ON prediction (model) WHERE state || '' = 'queued';
