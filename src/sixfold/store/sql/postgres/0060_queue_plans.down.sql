ALTER TABLE hold RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
ALTER TABLE prediction RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);
DROP INDEX prediction_waiting;
CREATE INDEX prediction_waiting ON prediction (model) WHERE state = 'queued';
