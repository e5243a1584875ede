-- name: servers_living | Which of some servers still live; `boots` is a JSON array.
SELECT boot FROM json_array_elements_text(:boots::json) AS b (boot) WHERE boot = :own OR server_lives(boot);

-- name: prediction_claim_on | The same past those that another takes now.
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction
             WHERE state = 'queued' AND engine = :engine AND COALESCE(hardware, '') = :hardware
             ORDER BY created_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING *;
