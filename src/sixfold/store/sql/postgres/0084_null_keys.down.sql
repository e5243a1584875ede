DROP INDEX prediction_idempotency_id_key;
ALTER TABLE prediction ADD CONSTRAINT prediction_idempotency_id_key UNIQUE (idempotency_id);
DROP INDEX prediction_job_id_key;
ALTER TABLE prediction ADD CONSTRAINT prediction_job_id_key UNIQUE (job_id);
