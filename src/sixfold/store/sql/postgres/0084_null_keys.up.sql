-- Leaves predictions without an Idempotency-Key or a job id out of the unique indexes of these columns.
-- A run changes its prediction twice, and each change added an entry to both indexes, mostly for NULL. PostgreSQL uses
-- the indexes for a comparison with a value, which is never NULL.
ALTER TABLE prediction DROP CONSTRAINT prediction_idempotency_id_key;
CREATE UNIQUE INDEX prediction_idempotency_id_key ON prediction (idempotency_id) WHERE idempotency_id IS NOT NULL;
ALTER TABLE prediction DROP CONSTRAINT prediction_job_id_key;
CREATE UNIQUE INDEX prediction_job_id_key ON prediction (job_id) WHERE job_id IS NOT NULL;
