DROP INDEX prediction_waiting;
CREATE INDEX prediction_waiting ON prediction (model) WHERE state = 'queued';
