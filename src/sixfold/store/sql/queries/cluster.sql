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

-- name: key_rate_spend | Count a cost against a key's minute, all servers together; nothing when it does not fit.
INSERT INTO key_rate (key_id, kind, due) VALUES (:key_id, :kind, :now + :cost)
ON CONFLICT (key_id, kind) DO UPDATE
SET due = CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost
WHERE CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost - :now <= :most
RETURNING due;

-- name: key_rate_add | Count what was only known afterwards.
INSERT INTO key_rate (key_id, kind, due) VALUES (:key_id, :kind, :now + :cost)
ON CONFLICT (key_id, kind) DO UPDATE
SET due = CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost;

-- name: key_rate_ahead | How far ahead of its rate a key is, in µs.
SELECT CASE WHEN due > :now THEN due - :now ELSE 0 END AS ahead FROM key_rate
WHERE key_id = :key_id AND kind = :kind;

-- name: key_rate_sweep | Forget what has long been earned.
DELETE FROM key_rate WHERE due < :now - :life;
