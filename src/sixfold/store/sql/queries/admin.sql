-- name: admin_waiting | Return queued predictions of all accounts, oldest first.
SELECT p.id, p.model, p.engine, p.state, p.attempt, p.created_at, p.started_at, p.hardware, a.email
FROM prediction p JOIN account a ON a.id = p.account_id
WHERE p.state = 'queued' ORDER BY p.created_at, p.id LIMIT :limit;

-- name: admin_running | Return predictions that workers hold, of all accounts, oldest first.
SELECT p.id, p.model, p.engine, p.state, p.attempt, p.created_at, p.started_at, p.hardware, a.email
FROM prediction p JOIN account a ON a.id = p.account_id
WHERE p.state IN ('starting', 'running', 'canceling') ORDER BY p.started_at, p.id LIMIT :limit;

-- name: admin_predictions | Return predictions of all accounts that match a state and a search pattern, newest first.
SELECT p.id, p.request_id, p.created_at, p.completed_at - p.created_at AS took, p.face, p.model, p.engine AS served, p.state, p.cost, p.charge,
       COALESCE(p.error, '') AS error, COALESCE(a.email, '') AS email, p.account_id
FROM prediction p JOIN account a ON a.id = p.account_id
WHERE p.id < :before AND p.parent_id IS NULL AND (:state = '' OR p.state = :state)
  AND LOWER(p.id || ' ' || p.request_id || ' ' || p.face || ' ' || p.model || ' ' || p.engine || ' '
            || COALESCE(p.error, '') || ' ' || COALESCE(a.email, '')) LIKE :pattern ESCAPE '\'
ORDER BY p.id DESC LIMIT :limit;

-- name: admin_calls | Return gateway calls of all accounts that match a state and a search pattern, newest first.
SELECT c.id, c.id AS request_id, c.created_at, CASE WHEN c.ended_at IS NULL THEN NULL ELSE c.total_us END AS took,
       c.face, c.model, c.target AS served, c.state, c.held, c.cost, c.attempts, c.counted_by, c.error,
       COALESCE(a.email, '') AS email, c.account_id,
       (SELECT ended.charge FROM relay_call ended WHERE ended.id = c.id) AS charge
FROM relay_known c JOIN account a ON a.id = c.account_id
WHERE c.id < :before AND (:state = '' OR c.state = :state)
  AND LOWER(c.id || ' ' || c.face || ' ' || c.model || ' ' || c.target || ' ' || c.error || ' '
            || COALESCE(a.email, '')) LIKE :pattern ESCAPE '\'
ORDER BY c.id DESC LIMIT :limit;

-- name: admin_failures | Count failed and expired predictions since an id by model, engine and error kind, with the latest one.
SELECT g.model, g.served, g.total, p.id, p.error, p.created_at
FROM (SELECT model, engine AS served, error_kind, COUNT(*) AS total, MAX(id) AS latest FROM prediction
      WHERE id >= :since AND state IN ('failed', 'expired') GROUP BY model, engine, error_kind) AS g
JOIN prediction p ON p.id = g.latest
ORDER BY g.total DESC, p.id DESC LIMIT :limit;

-- name: admin_failed_calls | Count failed gateway calls since an id by model and target, with the latest one.
SELECT g.model, g.served, g.total, c.id, c.error, c.created_at
FROM (SELECT model, target AS served, COUNT(*) AS total, MAX(id) AS latest FROM relay_call
      WHERE id >= :since AND state = 'failed' GROUP BY model, target) AS g
JOIN relay_call c ON c.id = g.latest
ORDER BY g.total DESC, c.id DESC LIMIT :limit;

-- name: admin_storage | Count media files and sum their bytes by kind.
SELECT kind, COUNT(*) AS files, CAST(SUM(size) AS BIGINT) AS bytes FROM media GROUP BY kind ORDER BY kind;

-- name: admin_keepers | Return the accounts that store the most bytes, largest first.
SELECT a.id, COALESCE(a.email, '') AS email, COUNT(*) AS files, CAST(SUM(m.size) AS BIGINT) AS bytes
FROM media m JOIN account a ON a.id = m.account_id
GROUP BY a.id, a.email ORDER BY bytes DESC LIMIT :limit;

-- name: admin_slots | Count and sum the predictions since an id by the slot of time in which they were accepted.
SELECT slot, COUNT(*) AS total, CAST(SUM(failed) AS BIGINT) AS failed, CAST(SUM(earned) AS BIGINT) AS earned,
  CAST(SUM(spent) AS BIGINT) AS spent, CAST(SUM(waited) AS BIGINT) AS waited,
  CAST(SUM(worked) AS BIGINT) AS worked
FROM (SELECT (created_at - :start) / :step AS slot, CASE WHEN state IN ('failed', 'expired') THEN 1 ELSE 0 END AS failed,
    CASE WHEN parent_id IS NULL THEN cost ELSE 0 END AS earned, COALESCE(upstream_cost, 0) AS spent,
    COALESCE(started_at, completed_at, :now) - created_at AS waited,
    CASE WHEN started_at IS NULL THEN 0 ELSE COALESCE(completed_at, :now) - started_at END AS worked
  FROM prediction WHERE id >= :since AND created_at >= :start) AS p
GROUP BY slot;

-- name: admin_slot_durations | Return the median and the 95th percentile of run times since an id by slot of time.
SELECT slot, MIN(CASE WHEN place * 2 >= total THEN run_us END) AS median,
  MIN(CASE WHEN place * 20 >= total * 19 THEN run_us END) AS high
FROM (SELECT slot, run_us, ROW_NUMBER() OVER (PARTITION BY slot ORDER BY run_us) AS place,
    COUNT(*) OVER (PARTITION BY slot) AS total
  FROM (SELECT (created_at - :start) / :step AS slot, run_us FROM prediction
    WHERE id >= :since AND created_at >= :start AND state = 'succeeded' AND parent_id IS NULL) AS p) AS q
GROUP BY slot;

-- name: admin_slot_calls | Count and sum the gateway's calls since an id by slot of time.
SELECT slot, COUNT(*) AS total, CAST(SUM(failed) AS BIGINT) AS failed, CAST(SUM(earned) AS BIGINT) AS earned,
  CAST(SUM(spent) AS BIGINT) AS spent
FROM (SELECT (created_at - :start) / :step AS slot, CASE WHEN state = 'failed' THEN 1 ELSE 0 END AS failed,
    CASE WHEN face = 'hosting' THEN 0 ELSE cost END AS earned,
    COALESCE(upstream_cost, 0) AS spent FROM relay_call WHERE id >= :since AND created_at >= :start) AS c
GROUP BY slot;
