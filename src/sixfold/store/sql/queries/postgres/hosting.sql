-- name: outbox_claim | Lease the oldest due webhook deliveries of the accounts that are not busy, skipping locked rows.
UPDATE webhook_outbox SET attempts = attempts + 1, due_at = :now + :lease
WHERE id IN (
    SELECT id FROM (
        SELECT id, ROW_NUMBER() OVER (PARTITION BY account_id ORDER BY due_at, id) AS place, due_at
        FROM (SELECT w.id, w.due_at, p.account_id
              FROM webhook_outbox w JOIN prediction p ON p.id = w.prediction_id
              WHERE w.ended_at IS NULL AND w.due_at <= :now
                AND p.account_id NOT IN (SELECT value FROM json_array_elements_text(CAST(:busy AS JSON)))
              ORDER BY w.due_at, w.id LIMIT :window FOR UPDATE OF w SKIP LOCKED) AS due) AS placed
    WHERE place <= :share ORDER BY place, due_at LIMIT :limit)
RETURNING id, prediction_id, event, attempts, created_at, CAST(:now AS BIGINT) AS now,
          COALESCE(LENGTH(webhook_outbox.prediction), 0) AS size,
          (SELECT account_id FROM prediction WHERE prediction.id = prediction_id) AS account_id;
