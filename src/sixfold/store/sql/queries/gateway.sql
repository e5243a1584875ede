-- name: gateway_call_insert | A call that has ended, among others.
INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, attempts,
    input_tokens, cached_tokens, output_tokens, counted_by, held, cost, first_us, total_us, error, request,
    response, words, charge, created_at, ended_at)
VALUES (:id, :account_id, :key_id, :face, :model, :target, :state, :holder, :streamed, :attempts,
    :input_tokens, :cached_tokens, :output_tokens, :counted_by, :held, :cost, :first_us, :total_us, :error,
    :request, :response, :words, :charge, COALESCE(NULLIF(:held_at, 0), :now), :now);

-- name: gateway_call_finish | A call that has ended; nothing when a sweep ended it before.
INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, attempts,
    input_tokens, cached_tokens, output_tokens, counted_by, held, cost, first_us, total_us, error, request,
    response, words, charge, created_at, ended_at)
VALUES (:id, :account_id, :key_id, :face, :model, :target, :state, :holder, :streamed, :attempts,
    :input_tokens, :cached_tokens, :output_tokens, :counted_by, :held, :cost, :first_us, :total_us, :error,
    :request, :response, :words, :charge, COALESCE(NULLIF(:held_at, 0), :now), :now)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: find_orphaned_holds | Calls under way of servers that are gone, all but `holder`, and those that are too old.
SELECT id, holder, CASE WHEN created_at < :before THEN 1 ELSE 0 END AS late FROM (
    SELECT h.id, h.created_at, COALESCE(h.about ->> 'holder', c.holder) AS holder
    FROM hold h LEFT JOIN relay_call c ON c.id = h.id AND c.state = 'running' WHERE h.state = 'pending') AS held
WHERE holder IS NOT NULL AND (holder <> :holder OR created_at < :before)
LIMIT 1000;

-- name: gateway_call_abandon | A call that was under way failed, and was free.
INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, held, error, charge,
    created_at, ended_at)
SELECT id, account_id, key_id, face, model, target, 'failed', holder, streamed, held, :error, :charge, created_at,
    :now
FROM relay_known WHERE id = :id AND state = 'running'
ON CONFLICT (id) DO UPDATE SET state = excluded.state, error = excluded.error, charge = excluded.charge,
    ended_at = excluded.ended_at
WHERE relay_call.state = 'running'
RETURNING id;

-- name: gateway_call_forget | Forget calls that ended long ago; their ids come before those that are made since.
DELETE FROM relay_call WHERE id < :id AND created_at < :before AND state <> 'running' RETURNING id;

-- name: gateway_call_page | An account's calls, newest first, from before a position; an empty filter takes all.
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

-- name: key_spend_add | Count an amount against a key's day and month; gives those whose budget it fits.
INSERT INTO key_spend (key_id, period, amount)
VALUES (:key_id, strftime('%Y-%m-%d', :now / 1000000, 'unixepoch'), :amount),
       (:key_id, strftime('%Y-%m', :now / 1000000, 'unixepoch'), :amount)
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
WHERE key_spend.amount + excluded.amount <= CASE length(key_spend.period) WHEN 10 THEN :day ELSE :month END
RETURNING period;

-- name: key_spent | What a key has spent in a day or a month.
SELECT amount FROM key_spend WHERE key_id = :key_id AND period = :period;

-- name: key_spend_return | Give back what was counted and not charged.
UPDATE key_spend SET amount = amount - :amount WHERE key_id = :key_id AND period IN (:day, :month);
