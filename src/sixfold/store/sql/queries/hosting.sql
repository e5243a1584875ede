-- name: outbox_insert | Insert a webhook delivery for an event of a prediction, once for each event.
INSERT INTO webhook_outbox (id, prediction_id, event, prediction, due_at, created_at)
VALUES (:id, :prediction_id, :event, :prediction, :now, :now)
ON CONFLICT DO NOTHING;

-- name: outbox_delete | Delete the webhook delivery for an event of a prediction.
DELETE FROM webhook_outbox WHERE prediction_id = :prediction_id AND event = :event;

-- name: outbox_due | Return one webhook delivery if any is due.
SELECT id FROM webhook_outbox WHERE ended_at IS NULL AND due_at <= :now LIMIT 1;

-- name: outbox_claim | Lease the oldest due webhook deliveries of the accounts that are not busy, some of each.
UPDATE webhook_outbox SET attempts = attempts + 1, due_at = :now + :lease
WHERE id IN (
    SELECT id FROM (
        SELECT id, ROW_NUMBER() OVER (PARTITION BY account_id ORDER BY due_at, id) AS place, due_at
        FROM (SELECT w.id, w.due_at, p.account_id
              FROM webhook_outbox w JOIN prediction p ON p.id = w.prediction_id
              WHERE w.ended_at IS NULL AND w.due_at <= :now
                AND p.account_id NOT IN (SELECT value FROM {texts :busy})
              ORDER BY w.due_at, w.id LIMIT :window {skip_locked w}) AS due) AS placed
    WHERE place <= :share ORDER BY place, due_at LIMIT :limit)
RETURNING id, prediction_id, event, attempts, created_at, CAST(:now AS BIGINT) AS now,
          COALESCE(LENGTH(webhook_outbox.prediction), 0) AS size,
          (SELECT account_id FROM prediction WHERE prediction.id = prediction_id) AS account_id;

-- name: outbox_prediction | Return the prediction stored with a webhook delivery, unless it was deleted, whether its member or program has ended, and whether its account is closed.
SELECT w.prediction, p.webhook, CASE WHEN a.closing_at IS NULL THEN 0 ELSE 1 END AS is_closed,
    CASE WHEN k.grant_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM oauth_grant g WHERE g.id = k.grant_id AND g.ended_at IS NULL) THEN 1
        WHEN k.member_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM member m WHERE m.id = k.member_id) THEN 1
        ELSE 0 END AS is_ended
FROM webhook_outbox w JOIN prediction p ON p.id = w.prediction_id JOIN account a ON a.id = p.account_id
LEFT JOIN api_key k ON k.id = p.key_id
WHERE w.id = :id;

-- name: outbox_again | Reschedule a failed webhook delivery.
UPDATE webhook_outbox SET due_at = :now + :delay, error = :error WHERE id = :id AND ended_at IS NULL;

-- name: outbox_end | Mark a webhook delivery as delivered or given up.
UPDATE webhook_outbox SET ended_at = :now, error = :error WHERE id = :id;

-- name: outbox_sweep | Delete webhook deliveries that ended before `before`.
DELETE FROM webhook_outbox WHERE ended_at < :before RETURNING id;

-- name: outbox_of_prediction | Return the webhook deliveries of a prediction with their results, oldest first.
SELECT id, event, attempts, due_at, ended_at, error, created_at
FROM webhook_outbox WHERE prediction_id = :prediction_id ORDER BY created_at, id;
