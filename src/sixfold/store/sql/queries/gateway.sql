-- name: gateway_call_insert | Insert a finished gateway call; used in batches.
{call_insert};

-- name: gateway_call_finish | Insert a finished gateway call; return no row if a sweep has already ended it.
{call_insert}
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: find_orphaned_holds | Return running gateway calls of stopped servers, and those of `holder` created before `before`.
WITH held AS MATERIALIZED (
    SELECT h.id, COALESCE({json h.about} ->> 'holder', c.holder) AS holder, h.created_at < :before AS late
    FROM hold h LEFT JOIN relay_call c ON c.id = h.id AND c.state = 'running'
    WHERE h.state = 'pending' AND (h.about IS NOT NULL OR c.id IS NOT NULL)),
gone AS MATERIALIZED (
    SELECT holder FROM (SELECT DISTINCT holder FROM held WHERE holder <> :holder) AS others
    WHERE NOT server_lives(holder))
SELECT id, holder FROM held WHERE (late AND holder = :holder) OR holder IN (SELECT holder FROM gone) LIMIT 1000;

-- name: gateway_call_abandon | Mark a running gateway call as failed, without a charge.
INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, held, error, charge,
    created_at, ended_at)
SELECT id, account_id, key_id, face, model, target, 'failed', holder, streamed, held, :error, :charge, created_at,
    :now
FROM relay_known WHERE id = :id AND state = 'running'
ON CONFLICT (id) DO UPDATE SET state = excluded.state, error = excluded.error, charge = excluded.charge,
    ended_at = excluded.ended_at
WHERE relay_call.state = 'running'
RETURNING id;

-- name: gateway_call_withdraw | Mark a paid gateway call as failed, without a charge and its response; return its model and account.
UPDATE relay_call SET state = 'failed', cost = 0, error = :error, charge = :charge, response = NULL,
    words = LOWER(id || ' ' || model || ' ' || target || ' ' || :error)
WHERE id = :id AND state <> 'running' RETURNING model, account_id;

-- name: gateway_call_shared | Return a gateway call if a guardrail of the caller has received its response.
SELECT id FROM relay_call WHERE id = :id AND shared = 1;

-- name: gateway_call_succeeded | Return a gateway call if it has succeeded, and the prediction that pays for it, if any.
SELECT id FROM relay_call WHERE id = :id AND state = 'succeeded'
  AND (:prediction_id = '' OR EXISTS (SELECT 1 FROM prediction WHERE id = :prediction_id AND state = 'succeeded'));

-- name: gateway_call_forget | Delete at most `limit` finished gateway calls created before `before`; the bound on the id limits the scan.
DELETE FROM relay_call WHERE id IN (
    SELECT id FROM relay_call WHERE id < :id AND created_at < :before AND state <> 'running' ORDER BY id LIMIT :limit)
RETURNING id;

-- name: gateway_call_page | Return a page of an account's gateway calls, newest first; an empty filter matches all.
SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
       counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at,
       (SELECT ended.charge FROM relay_call ended WHERE ended.id = relay_known.id) AS charge
FROM relay_known
WHERE account_id = :account_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
  AND (:key_id = '' OR key_id = :key_id OR key_id IN (SELECT k.id FROM api_key k WHERE k.grant_id = :key_id))
  AND words LIKE :pattern ESCAPE '\'
ORDER BY id DESC
LIMIT :limit;

-- name: gateway_run_page | Return a page of an account's predictions for requests to the gateway, newest first, as `gateway_call_page`.
SELECT * FROM (
    SELECT id, key_id, model, engine AS target, 0 AS streamed, attempt AS attempts, 0 AS input_tokens,
           0 AS cached_tokens, 0 AS output_tokens, 'none' AS counted_by, price AS held, cost, created_at, charge,
           COALESCE(completed_at - created_at, 0) AS first_us, COALESCE(completed_at - created_at, 0) AS total_us,
           COALESCE(error, CASE WHEN state IN ('canceled', 'expired') THEN state ELSE '' END) AS error,
           NULL AS request, NULL AS response, completed_at AS ended_at,
           CASE WHEN face <> 'openai' THEN face WHEN model = 'embeddings' THEN 'embeddings'
                WHEN model = 'tts' THEN 'speech' WHEN model = 'stt' THEN 'transcriptions' ELSE 'images' END AS face,
           CASE WHEN state = 'succeeded' THEN 'succeeded' WHEN completed_at IS NULL THEN 'running'
                ELSE 'failed' END AS state
    FROM prediction
    WHERE account_id = :account_id AND id < :before AND parent_id IS NULL
      AND face IN ('openai', 'service', 'training', 'videos')
      -- A prediction of these engines makes a call that is in the log already.
      AND engine NOT IN ('relay', 'relay-vision')
      AND (:model = '' OR model = :model)
      AND (:key_id = '' OR key_id = :key_id OR credential_id = :key_id)) AS run
WHERE (:state = '' OR state = :state)
  AND LOWER(id || ' ' || model || ' ' || target || ' ' || error) LIKE :pattern ESCAPE '\'
ORDER BY id DESC LIMIT :limit;

-- name: key_spend_add | Add an amount to a key's spending of the day and month; return the periods within budget.
INSERT INTO key_spend (key_id, period, amount)
VALUES (:key_id, {day :now}, :amount),
       (:key_id, {month :now}, :amount)
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
WHERE key_spend.amount + excluded.amount <= CASE length(key_spend.period) WHEN 10 THEN :day ELSE :month END
RETURNING period;

-- name: key_spent | Return the amount that a key has spent in a day or month.
SELECT amount FROM key_spend WHERE key_id = :key_id AND period = :period;

-- name: key_spend_change | Add to the spending of a key now or at a time; changes no row of a period beyond its budget.
INSERT INTO key_spend (key_id, period, amount)
SELECT :key_id, spent.period, :amount
FROM (SELECT {day COALESCE(:at, :now)} AS period
      UNION ALL SELECT {month COALESCE(:at, :now)}) AS spent
WHERE (:amount > 0 AND :amount <= :day AND :amount <= :month)
   OR (:amount < 0 AND EXISTS (SELECT 1 FROM key_spend s WHERE s.key_id = :key_id AND s.period = spent.period))
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
WHERE excluded.amount < 0
   OR key_spend.amount + excluded.amount <= CASE length(key_spend.period) WHEN 10 THEN :day ELSE :month END;

-- name: credit_now | Return an account's balances, in a row for each current period in which a key has spent.
SELECT a.kind, a.posted, a.held, s.key_id, s.period, s.amount
FROM account a LEFT JOIN key_spend s ON s.key_id = :key_id
     AND s.period IN ({day :now}, {month :now})
WHERE a.id = :account_id;

-- name: credit_now_shared | Return an account's balances, in a row for each current period in which one of `ids` (a JSON array) has spent.
SELECT a.kind, a.posted, a.held, s.key_id, s.period, s.amount
FROM account a LEFT JOIN key_spend s ON s.key_id {in :ids}
     AND s.period IN ({day :now}, {month :now})
WHERE a.id = :account_id;

-- name: key_spent_now | Return the amounts that a key has spent in the current day and month.
SELECT period, amount FROM key_spend
WHERE key_id = :key_id
  AND period IN ({day :now}, {month :now});

-- name: key_spend_return | Subtract an uncharged amount from a key's spending.
UPDATE key_spend SET amount = amount - :amount WHERE key_id = :key_id AND period IN (:day, :month);

-- name: budgets_spent | Return what each of `ids` (a JSON array of budgets) has spent in a day and a month.
SELECT key_id, period, amount FROM key_spend
WHERE key_id {in :ids} AND period IN (:day, :month);

-- name: budgets_spend | Add an amount to the spending of the day and month of all of `budgets` (a JSON array), or return no row if one would be exceeded.
WITH budget AS (
    SELECT value ->> 'id' AS key_id, CAST(value ->> 'day' AS BIGINT) AS day,
           CAST(value ->> 'month' AS BIGINT) AS month FROM {items :budgets}),
counter AS (
    SELECT key_id, {day :now} AS period, day AS most FROM budget
    UNION ALL SELECT key_id, {month :now}, month FROM budget)
INSERT INTO key_spend (key_id, period, amount)
SELECT key_id, period, :amount FROM counter
WHERE NOT EXISTS (
    SELECT 1 FROM counter c LEFT JOIN key_spend s ON s.key_id = c.key_id AND s.period = c.period
    WHERE COALESCE(s.amount, 0) + :amount > c.most)
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
RETURNING period;

-- name: gateway_call_upstream_costs | Return revenue and provider costs of answered gateway calls by target since a point in time.
-- Their predictions pay for the calls of `hosting`.
SELECT target AS engine, COUNT(*) AS runs,
       CAST(SUM(CASE WHEN face = 'hosting' THEN 0 ELSE cost END) AS BIGINT) AS earned,
       CAST(COALESCE(SUM(upstream_cost), 0) AS BIGINT) AS spent, COUNT(upstream_cost) AS reported
FROM relay_call WHERE id >= :first AND created_at >= :since AND state IN ('succeeded', 'left')
GROUP BY target ORDER BY target;
