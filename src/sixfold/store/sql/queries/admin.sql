-- name: admin_waiting | What stands in the queue, oldest first, of all accounts.
SELECT p.id, p.model, p.engine, p.state, p.attempt, p.created_at, p.started_at, p.hardware, a.email
FROM prediction p JOIN account a ON a.id = p.account_id
WHERE p.state = 'queued' ORDER BY p.created_at, p.id LIMIT :limit;

-- name: admin_running | What workers hold now, oldest first, of all accounts.
SELECT p.id, p.model, p.engine, p.state, p.attempt, p.created_at, p.started_at, p.hardware, a.email
FROM prediction p JOIN account a ON a.id = p.account_id
WHERE p.state IN ('starting', 'running', 'canceling') ORDER BY p.started_at, p.id LIMIT :limit;

-- name: admin_predictions | Orders of all accounts, newest first, searched by what they say of themselves.
SELECT p.id, p.request_id, p.created_at, p.completed_at, p.face, p.model, p.engine AS served, p.state, p.cost, p.charge,
       COALESCE(p.error, '') AS error, COALESCE(a.email, '') AS email
FROM prediction p JOIN account a ON a.id = p.account_id
WHERE p.id < :before AND p.parent_id IS NULL AND (:state = '' OR p.state = :state)
  AND LOWER(p.id || ' ' || p.request_id || ' ' || p.face || ' ' || p.model || ' ' || p.engine || ' '
            || COALESCE(p.error, '') || ' ' || COALESCE(a.email, '')) LIKE :pattern ESCAPE '\'
ORDER BY p.id DESC LIMIT :limit;

-- name: admin_calls | Calls of model servers of all accounts, the same way.
SELECT c.id, c.id AS request_id, c.created_at, c.ended_at AS completed_at, c.face, c.model, c.target AS served,
       c.state, c.cost, c.error, COALESCE(a.email, '') AS email,
       (SELECT ended.charge FROM relay_call ended WHERE ended.id = c.id) AS charge
FROM relay_known c JOIN account a ON a.id = c.account_id
WHERE c.id < :before AND (:state = '' OR c.state = :state)
  AND LOWER(c.id || ' ' || c.face || ' ' || c.model || ' ' || c.target || ' ' || c.error || ' '
            || COALESCE(a.email, '')) LIKE :pattern ESCAPE '\'
ORDER BY c.id DESC LIMIT :limit;

-- name: admin_failures | What failed since an id was given out, by model, engine and kind, with the latest.
SELECT g.model, g.served, g.total, p.id, p.error, p.created_at
FROM (SELECT model, engine AS served, error_kind, COUNT(*) AS total, MAX(id) AS latest FROM prediction
      WHERE id >= :since AND state IN ('failed', 'expired') GROUP BY model, engine, error_kind) AS g
JOIN prediction p ON p.id = g.latest
ORDER BY g.total DESC, p.id DESC LIMIT :limit;

-- name: admin_failed_calls | Calls of model servers that failed, the same way.
SELECT g.model, g.served, g.total, c.id, c.error, c.created_at
FROM (SELECT model, target AS served, COUNT(*) AS total, MAX(id) AS latest FROM relay_call
      WHERE id >= :since AND state = 'failed' GROUP BY model, target) AS g
JOIN relay_call c ON c.id = g.latest
ORDER BY g.total DESC, c.id DESC LIMIT :limit;

-- name: admin_endings | How orders since an id was given out stand, and what they cost.
SELECT state, COUNT(*) AS total, CAST(SUM(cost) AS BIGINT) AS cost FROM prediction
WHERE id >= :since AND parent_id IS NULL GROUP BY state ORDER BY state;

-- name: admin_storage | Named files by kind.
SELECT kind, COUNT(*) AS files, CAST(SUM(size) AS BIGINT) AS bytes FROM media GROUP BY kind ORDER BY kind;

-- name: admin_keepers | Who keeps most.
SELECT COALESCE(a.email, '') AS email, COUNT(*) AS files, CAST(SUM(m.size) AS BIGINT) AS bytes
FROM media m JOIN account a ON a.id = m.account_id
GROUP BY a.id, a.email ORDER BY bytes DESC LIMIT :limit;
