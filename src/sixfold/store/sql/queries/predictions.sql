-- name: prediction_insert | Add a prediction to its model's queue; nothing where the queue or the account's share is full.
INSERT INTO prediction (
    id, account_id, job_id, request_id, idempotency_id, parent_id, face, model, engine, quality,
    output_kind, inputs, task, fingerprint, origin_id, state, price, credits, meter, rate, hardware,
    charge, webhook, priced_us, list_price, key_id, keyless, credential_id, withheld, created_at)
SELECT
    :id, :account_id, :job_id, :request_id, :idempotency_id, :parent_id, :face, :model, :engine, :quality,
    :output_kind, :inputs, :task, :fingerprint,
    COALESCE((SELECT o.origin_id FROM prediction o
              WHERE o.account_id = :account_id AND o.fingerprint = :fingerprint
                AND o.state NOT IN ('failed', 'canceled', 'expired')
              ORDER BY o.id LIMIT 1), :id),
    'queued', :price, :credits, :meter, :rate, :hardware,
    :charge, :webhook, :priced_us, :list_price, :key_id, :keyless, :credential_id,
    COALESCE((SELECT CASE WHEN p.price > 0 OR p.withheld = 1 THEN 1 ELSE 0 END FROM prediction p WHERE p.id = :parent_id), 0),
    :now
WHERE (SELECT COUNT(*) FROM (SELECT 1 FROM prediction w WHERE w.state = 'queued' AND w.model = :model
                             LIMIT :queue_limit) AS q) < :queue_limit
  AND (:free_queue_limit = 0
       OR (SELECT COUNT(*) FROM (SELECT 1 FROM prediction f
               WHERE f.state = 'queued' AND f.model = :model AND f.account_id = :account_id
                 AND f.price = 0 AND f.parent_id IS NULL LIMIT :free_queue_limit) AS q) < :free_queue_limit)
RETURNING *;

-- name: prediction_by_id | One prediction.
SELECT * FROM prediction WHERE id = :id;

-- name: predictions_by_id | Several predictions; `ids` is a JSON array.
SELECT * FROM prediction WHERE id IN (SELECT value FROM json_each(:ids));

-- name: predictions_ended | Those of several that ended or shall end; `ids` is a JSON array.
SELECT * FROM prediction WHERE id IN (SELECT value FROM json_each(:ids))
  AND state IN ('canceling', 'succeeded', 'failed', 'canceled', 'expired');

-- name: prediction_by_job | One prediction by its capability.
SELECT * FROM prediction WHERE job_id = :job_id;

-- name: prediction_by_idempotency | The prediction that an Idempotency-Key made before.
SELECT * FROM prediction WHERE idempotency_id = :idempotency_id;

-- name: prediction_page | An account's predictions, newest first.
SELECT * FROM prediction
WHERE account_id = :account_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
ORDER BY id DESC LIMIT :limit;

-- name: prediction_page_sizes | The characters of an account's predictions, newest first.
SELECT LENGTH(inputs) + LENGTH(task) + COALESCE(LENGTH(output), 0) + COALESCE(LENGTH(logs), 0) AS size FROM prediction
WHERE account_id = :account_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
ORDER BY id DESC LIMIT :limit;

-- name: prediction_page_of_credential | The predictions of a key without account.read, or of a grant, newest first.
SELECT * FROM prediction
WHERE credential_id = :credential_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
ORDER BY id DESC LIMIT :limit;

-- name: prediction_page_of_credential_sizes | The characters of such predictions, newest first.
SELECT LENGTH(inputs) + LENGTH(task) + COALESCE(LENGTH(output), 0) + COALESCE(LENGTH(logs), 0) AS size FROM prediction
WHERE credential_id = :credential_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
ORDER BY id DESC LIMIT :limit;

-- name: prediction_waiting_free | How many free predictions of an account wait for a model, counted up to a limit.
SELECT COUNT(*) AS waiting FROM (
    SELECT 1 FROM prediction WHERE state = 'queued' AND model = :model AND account_id = :account_id
      AND price = 0 AND parent_id IS NULL LIMIT :limit) AS q;

-- name: prediction_position | How many stand before one in its queue.
SELECT COUNT(*) AS ahead FROM prediction
WHERE state = 'queued' AND engine = :engine
  AND (created_at < :created_at OR (created_at = :created_at AND id < :id));

-- name: prediction_claim | Lease the oldest waiting predictions of an engine to this server.
UPDATE prediction
SET state = :state, attempt = attempt + 1, holder = :holder, lease_until = :now + :lease,
    started_at = COALESCE(started_at, :now)
WHERE id IN (SELECT id FROM prediction WHERE state = 'queued' AND engine = :engine
             ORDER BY created_at, id LIMIT :limit)
RETURNING *;

-- name: prediction_claim_shared | Lease the oldest waiting predictions, free ones within their account's share.
WITH busy AS (
    SELECT account_id, COUNT(*) AS runs FROM prediction
    WHERE state IN ('starting', 'running', 'canceling') AND engine = :engine
      AND price = 0 AND COALESCE(list_price, 0) = 0
    GROUP BY +account_id  -- the sign keeps SQLite from reading an index of the whole table for the order
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

-- name: prediction_move | One guarded step of the state machine.
UPDATE prediction SET state = :to_state WHERE id = :id AND state = :from_state AND attempt = :attempt
RETURNING id;

-- name: prediction_succeed | The last step: the output is written with the state.
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

-- name: prediction_end | Any other ending.
UPDATE prediction
SET state = :to_state, error = :error, error_kind = :error_kind, logs = :logs,
    cold_start_us = :cold_start_us, run_us = :run_us, completed_at = :now,
    holder = NULL, lease_until = NULL
WHERE id = :id AND state = :from_state AND attempt = :attempt
RETURNING *;

-- name: prediction_requeue | Back to the queue: the lease was lost.
UPDATE prediction SET state = 'queued', holder = NULL, lease_until = NULL
WHERE id = :id AND state = :from_state AND attempt = :attempt
RETURNING *;

-- name: prediction_put_back | Back to the queue: its claim came to nothing, and was no attempt.
UPDATE prediction
SET state = 'queued', attempt = attempt - 1, holder = NULL, lease_until = NULL,
    started_at = CASE WHEN attempt = 1 THEN NULL ELSE started_at END
WHERE id = :id AND state = 'running' AND attempt = :attempt
RETURNING *;

-- name: prediction_heartbeat | Extend every lease that this server holds.
UPDATE prediction SET lease_until = :now + :lease
WHERE holder = :holder AND state IN ('starting', 'running', 'canceling')
RETURNING id;

-- name: prediction_lapsed | Leases that ran out.
SELECT * FROM prediction
WHERE state IN ('starting', 'running', 'canceling') AND lease_until < :now
ORDER BY lease_until LIMIT :limit;

-- name: prediction_orphans | What servers other than this one hold.
SELECT * FROM prediction
WHERE state IN ('starting', 'running', 'canceling') AND holder <> :holder
ORDER BY lease_until, id LIMIT :limit;

-- name: prediction_stale | What has waited longer than the queue's time to live.
SELECT * FROM prediction WHERE state = 'queued' AND created_at < :before ORDER BY created_at, id LIMIT :limit;

-- name: prediction_engines_waiting | Which engines have work.
SELECT engine, COUNT(*) AS waiting FROM prediction WHERE state = 'queued' GROUP BY engine;

-- name: prediction_states | How many predictions are in each living state.
SELECT 'queued' AS state, COUNT(*) AS total FROM prediction WHERE state = 'queued'
UNION ALL
SELECT state, COUNT(*) AS total FROM prediction
WHERE state IN ('starting', 'running', 'canceling') GROUP BY state;

-- name: prediction_upstream_costs | What engines took in, and what other services took for them.
SELECT engine, COUNT(*) AS runs, CAST(SUM(cost) AS BIGINT) AS earned,
       CAST(COALESCE(SUM(upstream_cost), 0) AS BIGINT) AS spent, COUNT(upstream_cost) AS told
FROM prediction WHERE state = 'succeeded' AND completed_at >= :since AND meter <> 'children'
GROUP BY engine ORDER BY engine;

-- name: prediction_children | What runs for another prediction and has not ended.
SELECT * FROM prediction
WHERE parent_id = :parent_id AND state NOT IN ('succeeded', 'failed', 'canceled', 'expired')
ORDER BY id;

-- name: prediction_children_costs | What the children of a prediction cost, those alike together, and what was held.
SELECT p.price, p.list_price AS parent_list_price, c.model, c.cost, c.list_price, COUNT(c.id) AS runs
FROM prediction p LEFT JOIN prediction c ON c.parent_id = p.id AND c.state = 'succeeded'
WHERE p.id = :id GROUP BY p.price, p.list_price, c.model, c.cost, c.list_price ORDER BY c.model, c.cost;

-- name: prediction_forget_key | Its Idempotency-Key may be used anew.
UPDATE prediction SET idempotency_id = NULL WHERE idempotency_id = :idempotency_id RETURNING id;

-- name: media_insert | One named file of an account.
INSERT INTO media (name, account_id, blob, kind, content_type, size, sha256, prediction_id, upload_id,
                   credential_id, created_at, expires_at)
VALUES (:name, :account_id, :blob, :kind, :content_type, :size, :sha256, :prediction_id, :upload_id,
        :credential_id, :now, :expires_at);

-- name: media_by_name | One named file.
SELECT * FROM media WHERE name = :name AND (expires_at IS NULL OR expires_at > :now);

-- name: media_by_upload | One upload of a tenant by its id.
SELECT * FROM media WHERE upload_id = :upload_id AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id)
  AND (expires_at IS NULL OR expires_at > :now);

-- name: media_usage | Bytes of uploads that count against an account's quota.
SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) AS used FROM media
WHERE account_id = :account_id AND kind = 'upload' AND (expires_at IS NULL OR expires_at > :now);

-- name: media_keep | An upload that was used lives on.
UPDATE media SET expires_at = NULL WHERE name = :name RETURNING name;

-- name: media_expired | Files whose time is up, and whose bytes are old enough to be deleted with them.
SELECT name, blob, CAST(:now AS BIGINT) AS now FROM media
WHERE expires_at <= :now AND created_at <= :now - 86400000000 ORDER BY expires_at LIMIT :limit;

-- name: media_delete | Forget one named file.
DELETE FROM media WHERE name = :name RETURNING blob;

-- name: media_blob_names | Whether any name still points to a blob.
SELECT name FROM media WHERE blob = :blob LIMIT 1;

-- name: clock | The database's clock, in epoch µs.
SELECT CAST(:now AS BIGINT) AS now;
