-- name: servers_living | Return the ids in `boots` (a JSON array) of servers that are running.
SELECT value AS boot FROM {texts :boots} WHERE value = :own OR server_lives(value);

-- name: prediction_claim_on | Lease the oldest queued predictions of an engine for one hardware.
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction
             WHERE state = 'queued' AND engine = :engine AND COALESCE(hardware, '') = :hardware
             ORDER BY created_at, id LIMIT :limit {skip_locked prediction})
RETURNING *;

-- name: key_rate_spend | Add a cost to a key's shared rate limit, and return how far the key is then ahead of it, in µs; return no row if the limit would be exceeded.
INSERT INTO key_rate (key_id, kind, due) SELECT :key_id, :kind, :now + :cost WHERE :cost <= :most
ON CONFLICT (key_id, kind) DO UPDATE
SET due = CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost
WHERE CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost - :now <= :most
RETURNING due - :now AS ahead;

-- name: key_rate_add | Add a cost to a key's rate limit without checking it, for costs known only after a request; return how far the key is then ahead of it, in µs.
INSERT INTO key_rate (key_id, kind, due) VALUES (:key_id, :kind, :now + :cost)
ON CONFLICT (key_id, kind) DO UPDATE
SET due = CASE WHEN key_rate.due > :now THEN key_rate.due ELSE :now END + :cost
RETURNING due - :now AS ahead;

-- name: key_rate_return | Subtract an unused cost from a key's rate limit.
UPDATE key_rate SET due = due - :cost WHERE key_id = :key_id AND kind = :kind;

-- name: key_rate_ahead | Return how far a key is ahead of its rate limit, in µs.
SELECT CASE WHEN due > :now THEN due - :now ELSE 0 END AS ahead FROM key_rate
WHERE key_id = :key_id AND kind = :kind;

-- name: key_rate_sweep | Delete rate limit counters that have been fully refilled for longer than `life`.
DELETE FROM key_rate WHERE due < :now - :life;

-- name: session_note | Insert or update the saved state of an open session held by this server.
INSERT INTO session_standing (session_id, seq, standing)
SELECT id, :seq, :standing FROM session WHERE id = :id AND holder = :holder AND closed_at IS NULL
ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq, standing = excluded.standing
RETURNING seq;

-- name: session_standing | Return the last saved state of a session.
SELECT seq, standing FROM session_standing WHERE session_id = :id;

-- name: session_forget | Delete the saved state of a session.
DELETE FROM session_standing WHERE session_id = :id;

-- name: session_take | Lease an open session to another server.
UPDATE session SET holder = :holder, lease_until = :now + :lease WHERE id = :id AND closed_at IS NULL
RETURNING id;

-- name: session_key | Return the budgets that a hold counts against, the key first.
SELECT key_id FROM hold WHERE id = :hold;

-- name: gateway_call_once_get | Return the call made earlier with an Idempotency-Key, with its state and cost.
SELECT o.call_id, COALESCE(c.state, CASE WHEN h.id IS NOT NULL THEN 'running' END) AS state, c.cost
FROM relay_once o LEFT JOIN relay_call c ON c.id = o.call_id
LEFT JOIN hold h ON h.id = o.call_id AND h.state = 'pending'
WHERE o.id = :id AND o.created_at > :now - :life;

-- name: gateway_call_once_of | Return the Idempotency-Key record of a call, if it has one.
SELECT id FROM relay_once WHERE call_id = :call_id;

-- name: gateway_call_once_put | Record the call made with an Idempotency-Key.
INSERT INTO relay_once (id, call_id, created_at) VALUES (:id, :call_id, :now)
ON CONFLICT (id) DO UPDATE SET call_id = excluded.call_id, created_at = excluded.created_at;

-- name: gateway_call_once_forget | Delete the record of the call made with an Idempotency-Key.
DELETE FROM relay_once WHERE id = :id;

-- name: gateway_call_once_sweep | Delete Idempotency-Key records of gateway calls that are older than `life`.
DELETE FROM relay_once WHERE created_at <= :now - :life;
