-- name: find_orphaned_holds | Return running gateway calls of stopped servers, and those of `holder` created before `before`.
WITH held AS MATERIALIZED (
    SELECT h.id, COALESCE(h.about::json ->> 'holder', c.holder) AS holder, h.created_at < :before AS late
    FROM hold h LEFT JOIN relay_call c ON c.id = h.id AND c.state = 'running'
    WHERE h.state = 'pending' AND (h.about IS NOT NULL OR c.id IS NOT NULL)),
gone AS MATERIALIZED (
    SELECT holder FROM (SELECT DISTINCT holder FROM held WHERE holder <> :holder) AS others
    WHERE NOT server_lives(holder))
SELECT id, holder FROM held WHERE (late AND holder = :holder) OR holder IN (SELECT holder FROM gone) LIMIT 1000;

-- name: gateway_call_page | Return a page of an account's gateway calls, newest first; each half of the union uses its own index.
SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
       counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at, charge
FROM (
    (SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
            counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at, charge
    FROM relay_call WHERE account_id = :account_id AND id < :before
      AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
      AND (:key_id = '' OR key_id = :key_id OR key_id IN (SELECT k.id FROM api_key k WHERE k.grant_id = :key_id))
      AND (:pattern = '%%' OR words LIKE :pattern ESCAPE '\')
    ORDER BY id DESC LIMIT :limit)
    UNION ALL
    (SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
            counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at, NULL
    FROM (SELECT id, about::json ->> 'key_id' AS key_id, about::json ->> 'face' AS face,
                 about::json ->> 'model' AS model, about::json ->> 'target' AS target, 'running' AS state,
                 (about::json ->> 'streamed')::bigint AS streamed, 0::bigint AS attempts, 0::bigint AS input_tokens,
                 0::bigint AS cached_tokens, 0::bigint AS output_tokens, '' AS counted_by, amount AS held,
                 0::bigint AS cost, 0::bigint AS first_us, 0::bigint AS total_us, '' AS error, NULL AS request,
                 NULL AS response, '' AS words, created_at, NULL::bigint AS ended_at
          FROM hold WHERE account_id = :account_id AND state = 'pending' AND about IS NOT NULL) AS running
    WHERE id < :before
      AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
      AND (:key_id = '' OR key_id = :key_id OR key_id IN (SELECT k.id FROM api_key k WHERE k.grant_id = :key_id))
      AND words LIKE :pattern ESCAPE '\'
    ORDER BY id DESC LIMIT :limit)
) AS calls
ORDER BY id DESC LIMIT :limit;

-- name: key_spend_add | Add an amount to a key's spending of the day and month; return the periods within budget.
INSERT INTO key_spend (key_id, period, amount)
VALUES (:key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), :amount),
       (:key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM'), :amount)
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
WHERE key_spend.amount + excluded.amount <= CASE length(key_spend.period) WHEN 10 THEN :day ELSE :month END
RETURNING period;

-- name: key_spend_change | Add to the spending of a key now or at a time; changes no row of a period beyond its budget.
INSERT INTO key_spend (key_id, period, amount)
SELECT :key_id, spent.period, :amount
FROM (SELECT to_char(to_timestamp(COALESCE(:at, :now) / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS period
      UNION ALL SELECT to_char(to_timestamp(COALESCE(:at, :now) / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM')) AS spent
WHERE (:amount > 0 AND :amount <= :day AND :amount <= :month)
   OR (:amount < 0 AND EXISTS (SELECT 1 FROM key_spend s WHERE s.key_id = :key_id AND s.period = spent.period))
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
WHERE excluded.amount < 0
   OR key_spend.amount + excluded.amount <= CASE length(key_spend.period) WHEN 10 THEN :day ELSE :month END;

-- name: credit_now | Return an account's balances, in a row for each current period in which a key has spent.
SELECT a.kind, a.posted, a.held, s.key_id, s.period, s.amount
FROM account a LEFT JOIN key_spend s ON s.key_id = :key_id
     AND s.period IN (to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'),
                      to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM'))
WHERE a.id = :account_id;

-- name: credit_now_shared | Return an account's balances, in a row for each current period in which one of `ids` (a JSON array) has spent.
SELECT a.kind, a.posted, a.held, s.key_id, s.period, s.amount
FROM account a LEFT JOIN key_spend s ON s.key_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)))
     AND s.period IN (to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'),
                      to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM'))
WHERE a.id = :account_id;

-- name: key_spent_now | Return the amounts that a key has spent in the current day and month.
SELECT period, amount FROM key_spend
WHERE key_id = :key_id
  AND period IN (to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'),
                 to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM'));

-- name: budgets_spent | Return what each of `ids` (a JSON array of budgets) has spent in a day and a month.
SELECT key_id, period, amount FROM key_spend
WHERE key_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json))) AND period IN (:day, :month);

-- name: budgets_spend | Add an amount to the spending of the day and month of all of `budgets` (a JSON array), or return no row if one would be exceeded.
WITH budget AS (
    SELECT each ->> 'id' AS key_id, (each ->> 'day')::bigint AS day, (each ->> 'month')::bigint AS month
    FROM json_array_elements(:budgets::json) AS listed (each)),
counter AS (
    SELECT key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS period, day AS most FROM budget
    UNION ALL SELECT key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM'), month FROM budget)
INSERT INTO key_spend (key_id, period, amount)
SELECT key_id, period, :amount FROM counter
WHERE NOT EXISTS (
    SELECT 1 FROM counter c LEFT JOIN key_spend s ON s.key_id = c.key_id AND s.period = c.period
    WHERE COALESCE(s.amount, 0) + :amount > c.most)
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
RETURNING period;
