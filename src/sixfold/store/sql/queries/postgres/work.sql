-- name: prediction_claim | Lease the oldest waiting predictions of an engine, past those that another takes now.
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction WHERE state = 'queued' AND engine = :engine
             ORDER BY created_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: prediction_orphans | What servers hold that are gone.
SELECT * FROM prediction
WHERE state IN ('starting', 'running', 'canceling') AND holder <> :holder AND NOT server_lives(holder)
ORDER BY lease_until, id LIMIT :limit;

-- name: predictions_by_id | Several predictions; `ids` is a JSON array.
SELECT * FROM prediction WHERE id IN (SELECT json_array_elements_text(:ids::json));

-- name: predictions_ended | Those of several that ended or shall end; `ids` is a JSON array.
SELECT * FROM prediction WHERE id IN (SELECT json_array_elements_text(:ids::json))
  AND state IN ('canceling', 'succeeded', 'failed', 'canceled', 'expired');
