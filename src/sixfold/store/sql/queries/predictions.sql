-- name: prediction_insert | Insert a queued prediction; return no row if the queue or the account's share of it is full.
INSERT INTO prediction (
    id, account_id, job_id, request_id, idempotency_id, parent_id, face, model, engine, quality,
    output_kind, inputs, task, fingerprint, origin_id, state, price, credits, meter, rate, hardware,
    charge, webhook, priced_us, list_price, key_id, keyless, credential_id, input_bytes, ignored_inputs,
    prompt_id, withheld, created_at)
SELECT
    :id, :account_id, :job_id, :request_id, :idempotency_id, :parent_id, :face, :model, :engine, :quality,
    :output_kind, :inputs, :task, :fingerprint,
    COALESCE((SELECT o.origin_id FROM prediction o
              WHERE o.account_id = :account_id AND o.fingerprint = :fingerprint
                AND o.state NOT IN ('failed', 'canceled', 'expired')
              ORDER BY o.id LIMIT 1), :id),
    'queued', :price, :credits, :meter, :rate, :hardware,
    :charge, :webhook, :priced_us, :list_price, :key_id, :keyless, :credential_id, :input_bytes, :ignored_inputs,
    :prompt_id,
    COALESCE((SELECT CASE WHEN p.price > 0 OR p.withheld = 1 THEN 1 ELSE 0 END FROM prediction p WHERE p.id = :parent_id), 0),
    :now
-- `|| ''` is in the condition of the index `prediction_waiting`, which claims must not use.
WHERE (SELECT COUNT(*) FROM (SELECT 1 FROM prediction w WHERE w.state || '' = 'queued' AND w.model = :model
                             LIMIT :queue_limit) AS q) < :queue_limit
  AND (:free_queue_limit = 0
       OR (SELECT COUNT(*) FROM (SELECT 1 FROM prediction f
               WHERE f.account_id = :account_id AND f.price = 0 AND f.parent_id IS NULL
                 AND f.state IN ('queued', 'starting', 'running', 'canceling')
               LIMIT :free_queue_limit) AS q) < :free_queue_limit)
RETURNING *;

-- name: prediction_by_id | Return a prediction by its id.
SELECT * FROM prediction WHERE id = :id;

-- name: prediction_head | Return the state of a prediction, who sees it, and its size in characters.
SELECT account_id, credential_id, state, withheld,
       {stored_chars prediction} AS size FROM prediction
WHERE id = :id;

-- name: predictions_by_id | Return predictions by their ids; `ids` is a JSON array.
SELECT * FROM prediction WHERE id {in :ids};

-- name: prediction_sizes | Return the sums of the sizes in characters of predictions of `ids`, a JSON array, up to the first one above `page_bytes`.
-- A text of 32 MiB takes 40 ms to measure, so rows after the one that exceeds the page are not measured.
WITH RECURSIVE measured (place, total) AS (
    SELECT -1, 0
    UNION ALL
    SELECT place + 1, total + {stored_chars p}
    FROM measured JOIN prediction p ON p.id = json_extract(:ids, '$[' || (place + 1) || ']')
    WHERE total <= :page_bytes
)
SELECT total FROM measured WHERE place >= 0 ORDER BY place;

-- name: predictions_ended | Return the ended and canceling predictions of `ids`, a JSON array.
SELECT * FROM prediction WHERE id {in :ids}
  AND state IN ('canceling', 'succeeded', 'failed', 'canceled', 'expired');

-- name: prediction_by_job | Return a prediction of an open account by its job id.
SELECT p.* FROM prediction p JOIN account a ON a.id = p.account_id
WHERE p.job_id = :job_id AND a.suspended_at IS NULL AND a.closing_at IS NULL;

-- name: prediction_by_idempotency | Return the prediction made earlier with an Idempotency-Key.
SELECT * FROM prediction WHERE idempotency_id = :idempotency_id;

-- name: prediction_page | Return the ids of a page of an account's predictions, newest first.
SELECT id FROM prediction
WHERE account_id = :account_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
ORDER BY id DESC LIMIT :limit;

-- name: prediction_page_unsuccessful | Return the ids of a page of an account's failed, canceled or expired predictions, newest first.
SELECT id FROM prediction
WHERE account_id = :account_id AND state = :state AND id < :before AND state IN ('failed', 'canceled', 'expired')
  AND (:model = '' OR model = :model)
ORDER BY id DESC LIMIT :limit;

-- `|| ''` prevents the use of other indexes than those of unfinished predictions.
-- name: prediction_page_unfinished | Return the ids of a page of an account's unfinished predictions, newest first, from the indexes of all unfinished ones.
SELECT id FROM (
    SELECT id FROM prediction
    WHERE state = 'queued' AND :state = 'queued' AND account_id || '' = :account_id AND id || '' < :before
      AND (:model = '' OR model = :model)
    UNION ALL
    SELECT id FROM prediction
    WHERE state IN ('starting', 'running', 'canceling') AND state = :state AND account_id || '' = :account_id AND id || '' < :before
      AND (:model = '' OR model = :model)
) AS q ORDER BY id || '' DESC LIMIT :limit;

-- name: prediction_page_of_credential | Return the ids of a page of the predictions of one credential, newest first.
SELECT id FROM prediction
WHERE credential_id = :credential_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
ORDER BY id DESC LIMIT :limit;

-- name: prediction_unfinished_free | Count an account's unfinished free predictions, up to a limit.
SELECT COUNT(*) AS unfinished FROM (
    SELECT 1 FROM prediction
    WHERE account_id = :account_id AND price = 0 AND parent_id IS NULL
      AND state IN ('queued', 'starting', 'running', 'canceling') LIMIT :limit) AS q;

-- name: storage_usage | Return the bytes that the free runs of an account have stored, with the parts of its workflows, and those of its cached node outputs.
SELECT a.kind, COALESCE(u.free_bytes, 0) AS free_bytes, COALESCE(u.cached_bytes, 0) AS cached_bytes
FROM account a LEFT JOIN storage_usage u ON u.account_id = a.id WHERE a.id = :account_id;

-- name: prediction_input_bytes | Return the bytes of the large inputs of an account's free and unsuccessful runs.
SELECT CAST(COALESCE(SUM(input_bytes), 0) AS BIGINT) AS used FROM prediction
WHERE account_id = :account_id AND input_bytes > 0
  AND (price = 0 OR state IN ('failed', 'canceled', 'expired'));

-- name: prediction_position | Count the queued predictions of an engine ahead of one.
SELECT COUNT(*) AS ahead FROM prediction
WHERE state = 'queued' AND engine = :engine
  AND (created_at < :created_at OR (created_at = :created_at AND id < :id));

-- name: prediction_claim | Lease the oldest queued predictions of an engine to this server.
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction WHERE state = 'queued' AND engine = :engine
             ORDER BY created_at, id LIMIT :limit {skip_locked prediction})
RETURNING *;

-- name: prediction_claim_shared | Lease the oldest queued predictions; limit free ones to each account's share.
WITH busy AS (
    SELECT account_id, COUNT(*) AS runs FROM prediction
    WHERE state IN ('starting', 'running', 'canceling') AND engine = :engine
      AND price = 0 AND COALESCE(list_price, 0) = 0
    GROUP BY +account_id  -- The unary plus prevents SQLite from scanning an index of the whole table to sort.
), waiting AS (
    SELECT id, account_id, created_at, price > 0 OR COALESCE(list_price, 0) > 0 AS is_priced,
           ROW_NUMBER() OVER (PARTITION BY account_id, price > 0 OR COALESCE(list_price, 0) > 0
                              ORDER BY created_at, id) AS place
    FROM prediction
    WHERE state = 'queued' AND engine = :engine
      AND (CAST(:hardware AS TEXT) IS NULL OR COALESCE(hardware, '') = :hardware)
)
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT waiting.id FROM waiting LEFT JOIN busy USING (account_id)
             WHERE waiting.is_priced OR waiting.place + COALESCE(busy.runs, 0) <= :free_runs
             ORDER BY waiting.created_at, waiting.id LIMIT :limit)
RETURNING *;

-- name: prediction_move | Change the state of a prediction if its state and attempt are as expected.
UPDATE prediction SET state = :to_state WHERE id = :id AND state = :from_state AND attempt = :attempt
RETURNING id;

-- name: prediction_succeed | Mark a prediction as succeeded and store its output in the same statement.
UPDATE prediction
SET state = 'succeeded', output = :output, quality = :quality,
    cost = COALESCE(CAST(:cost AS BIGINT), price), credits = COALESCE(CAST(:credits AS BIGINT), credits),
    charge = COALESCE(CAST(:charge AS TEXT), charge),
    list_price = COALESCE(CAST(:list_price AS BIGINT), list_price),
    engine_version = :engine_version, logs = :logs, cold_start_us = :cold_start_us, run_us = :run_us,
    stored_us = :stored_us, stored_bytes = :stored_bytes, upstream_cost = :upstream_cost,
    completed_at = :now, holder = NULL, lease_until = NULL
WHERE id = :id AND state IN (:from_state, :or_state) AND attempt = :attempt
RETURNING *, EXISTS (SELECT 1 FROM prediction c WHERE c.parent_id = prediction.id) AS has_children;

-- name: prediction_end | Mark a prediction as failed, canceled or expired.
UPDATE prediction
SET state = :to_state, error = :error, error_kind = :error_kind, logs = :logs,
    cold_start_us = :cold_start_us, run_us = :run_us, completed_at = :now,
    holder = NULL, lease_until = NULL
WHERE id = :id AND state = :from_state AND attempt = :attempt
RETURNING *;

-- name: prediction_requeue | Put a prediction back into the queue after its lease was lost.
UPDATE prediction SET state = 'queued', holder = NULL, lease_until = NULL
WHERE id = :id AND state = :from_state AND attempt = :attempt
RETURNING *;

-- name: prediction_put_back | Put a claimed prediction back into the queue without counting the attempt.
UPDATE prediction
SET state = 'queued', attempt = attempt - 1, holder = NULL, lease_until = NULL,
    started_at = CASE WHEN attempt = 1 THEN NULL ELSE started_at END
WHERE id = :id AND state = 'running' AND attempt = :attempt AND holder = :holder
RETURNING *;

-- name: prediction_heartbeat | Extend the leases of the predictions in `ids` (a JSON array) that this server holds.
UPDATE prediction SET lease_until = :now + :lease
WHERE id {in :ids} AND holder = :holder AND state IN ('starting', 'running', 'canceling')
RETURNING id;

-- name: prediction_lapsed | Return predictions whose lease has expired, at most a limit.
SELECT * FROM prediction
WHERE state IN ('starting', 'running', 'canceling') AND lease_until < :now
ORDER BY lease_until LIMIT :limit;

-- name: prediction_orphans | Return predictions leased to stopped servers, at most a limit.
SELECT * FROM prediction
WHERE state IN ('starting', 'running', 'canceling') AND holder <> :holder AND NOT server_lives(holder)
ORDER BY lease_until, id LIMIT :limit;

-- name: prediction_stale | Return predictions queued before `before`, oldest first, at most a limit.
SELECT * FROM prediction WHERE state = 'queued' AND created_at < :before ORDER BY created_at, id LIMIT :limit;

-- name: prediction_engines_waiting | Count queued predictions by engine.
SELECT engine, COUNT(*) AS waiting FROM prediction WHERE state = 'queued' GROUP BY engine;

-- name: prediction_states | Count unfinished predictions by state.
SELECT 'queued' AS state, COUNT(*) AS total FROM prediction WHERE state = 'queued'
UNION ALL
SELECT state, COUNT(*) AS total FROM prediction
WHERE state IN ('starting', 'running', 'canceling') GROUP BY state;

-- name: prediction_upstream_costs | Return revenue and provider costs of succeeded predictions by engine since a point in time.
SELECT engine, COUNT(*) AS runs, CAST(SUM(cost) AS BIGINT) AS earned,
       CAST(COALESCE(SUM(upstream_cost), 0) AS BIGINT) AS spent, COUNT(upstream_cost) AS reported
FROM prediction WHERE state = 'succeeded' AND completed_at >= :since AND meter <> 'children'
GROUP BY engine ORDER BY engine;

-- name: prediction_children | Return the unfinished child predictions of a prediction.
SELECT * FROM prediction
WHERE parent_id = :parent_id AND state NOT IN ('succeeded', 'failed', 'canceled', 'expired')
ORDER BY id;

-- name: prediction_children_costs | Return the costs of a prediction's succeeded children, grouped, with the prediction's price.
SELECT p.price, p.list_price AS parent_list_price, c.model, c.cost, c.list_price, COUNT(c.id) AS runs
FROM prediction p LEFT JOIN prediction c ON c.parent_id = p.id AND c.state = 'succeeded'
WHERE p.id = :id GROUP BY p.price, p.list_price, c.model, c.cost, c.list_price ORDER BY c.model, c.cost;

-- name: prediction_forget_key | Clear the Idempotency-Key of a request's predictions (`id`, `id/1`, …) so that the key can be used again.
UPDATE prediction SET idempotency_id = NULL
WHERE idempotency_id = :idempotency_id
   OR (idempotency_id > :idempotency_id || '/' AND idempotency_id < :idempotency_id || '0')
RETURNING id;

-- name: clock | Return the database's clock in epoch µs.
SELECT CAST(:now AS BIGINT) AS now;
