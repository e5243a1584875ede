-- name: outbox_insert | What is to be told of a prediction's step; once for each step.
INSERT INTO webhook_outbox (id, prediction_id, event, prediction, due_at, created_at)
VALUES (:id, :prediction_id, :event, :prediction, :now, :now)
ON CONFLICT DO NOTHING;

-- name: outbox_delete | Forget a message about a prediction's step.
DELETE FROM webhook_outbox WHERE prediction_id = :prediction_id AND event = :event;

-- name: outbox_due | Whether anything is to be told now.
SELECT id FROM webhook_outbox WHERE ended_at IS NULL AND due_at <= :now LIMIT 1;

-- name: outbox_claim | Take what is due, for a while; nobody else takes it meanwhile.
UPDATE webhook_outbox SET attempts = attempts + 1, due_at = :now + :lease
WHERE id IN (SELECT id FROM webhook_outbox WHERE ended_at IS NULL AND due_at <= :now
             ORDER BY due_at, id LIMIT :limit)
RETURNING *, CAST(:now AS BIGINT) AS now;

-- name: outbox_again | It was not heard: say it again later.
UPDATE webhook_outbox SET due_at = :now + :delay, error = :error WHERE id = :id AND ended_at IS NULL;

-- name: outbox_end | It was heard, or will never be.
UPDATE webhook_outbox SET ended_at = :now, error = :error WHERE id = :id;

-- name: outbox_sweep | Forget what ended long ago.
DELETE FROM webhook_outbox WHERE ended_at < :before RETURNING id;

-- name: outbox_of_prediction | What was told of a prediction, and how it went.
SELECT * FROM webhook_outbox WHERE prediction_id = :prediction_id ORDER BY created_at, id;
