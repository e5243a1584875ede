-- name: servers_living | Which of some servers still live; `boots` is a JSON array. Here there is but this one.
SELECT value AS boot FROM json_each(:boots) WHERE value = :own;

-- name: prediction_claim_on | Lease the oldest waiting predictions of an engine that want some hardware.
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction
             WHERE state = 'queued' AND engine = :engine AND COALESCE(hardware, '') = :hardware
             ORDER BY created_at, id LIMIT :limit)
RETURNING *;
