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
INSERT INTO key_rate (key_id, kind, due) SELECT :key_id, :kind, :now + :cost WHERE :cost <= :most
ON CONFLICT (key_id, kind) DO UPDATE
SET due = CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost
WHERE CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost - :now <= :most
RETURNING due;

-- name: key_rate_add | Count what was only known afterwards.
INSERT INTO key_rate (key_id, kind, due) VALUES (:key_id, :kind, :now + :cost)
ON CONFLICT (key_id, kind) DO UPDATE
SET due = CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost;

-- name: key_rate_return | Take back a cost that was counted and not used.
UPDATE key_rate SET due = due - :cost WHERE key_id = :key_id AND kind = :kind;

-- name: key_rate_ahead | How far ahead of its rate a key is, in µs.
SELECT CASE WHEN due > :now THEN due - :now ELSE 0 END AS ahead FROM key_rate
WHERE key_id = :key_id AND kind = :kind;

-- name: key_rate_sweep | Forget what has long been earned.
DELETE FROM key_rate WHERE due < :now - :life;

-- name: session_note | Where a session stands, told by the server that has it.
INSERT INTO session_standing (session_id, seq, standing)
SELECT id, :seq, :standing FROM session WHERE id = :id AND holder = :holder AND closed_at IS NULL
ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq, standing = excluded.standing
RETURNING seq;

-- name: session_standing | Where a session stood when it was last told.
SELECT seq, standing FROM session_standing WHERE session_id = :id;

-- name: session_forget | Nobody goes on from there.
DELETE FROM session_standing WHERE session_id = :id;

-- name: session_take | A session is another server's from here on.
UPDATE session SET holder = :holder, lease_until = :now + :lease WHERE id = :id AND closed_at IS NULL
RETURNING id;

-- name: session_key | The key whose budget a hold counts against.
SELECT k.id AS key_id, k.scope FROM hold h JOIN api_key k ON k.id = h.key_id WHERE h.id = :hold;

-- name: gateway_call_once_get | The call that a request with the same key made before, and how that stands.
SELECT o.call_id, COALESCE(c.state, CASE WHEN h.id IS NOT NULL THEN 'running' END) AS state, c.cost
FROM relay_once o LEFT JOIN relay_call c ON c.id = o.call_id
LEFT JOIN hold h ON h.id = o.call_id AND h.state = 'pending'
WHERE o.id = :id AND o.created_at > :now - :life;

-- name: gateway_call_once_put | A request with a key makes a call.
INSERT INTO relay_once (id, call_id, created_at) VALUES (:id, :call_id, :now)
ON CONFLICT (id) DO UPDATE SET call_id = excluded.call_id, created_at = excluded.created_at;

-- name: gateway_call_once_sweep | Keys are forgotten after a day.
DELETE FROM relay_once WHERE created_at <= :now - :life;
