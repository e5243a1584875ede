-- name: servers_living | Return the ids in `boots` (a JSON array) of servers that are running.
SELECT boot FROM json_array_elements_text(:boots::json) AS b (boot) WHERE boot = :own OR server_lives(boot);

-- name: prediction_claim_on | Lease the oldest queued predictions of an engine for one hardware, skipping locked rows.
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction
             WHERE state = 'queued' AND engine = :engine AND COALESCE(hardware, '') = :hardware
             ORDER BY created_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING *;
