-- name: relay_begin | A paid call that is under way; its hold has the same id.
INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, held, created_at)
VALUES (:id, :account_id, :key_id, :face, :model, :target, 'running', :holder, :streamed, :held, :now);

-- name: relay_finish | A call that was under way has ended; nothing when it was ended before.
UPDATE relay_call SET state = :state, target = :target, attempts = :attempts, input_tokens = :input_tokens,
    cached_tokens = :cached_tokens, output_tokens = :output_tokens, counted_by = :counted_by, cost = :cost,
    first_us = :first_us, total_us = :total_us, error = :error, request = :request, response = :response,
    words = :words, ended_at = :now
WHERE id = :id AND state = 'running'
RETURNING id;

-- name: relay_finish_each | A call that was under way has ended, among others.
UPDATE relay_call SET state = :state, target = :target, attempts = :attempts, input_tokens = :input_tokens,
    cached_tokens = :cached_tokens, output_tokens = :output_tokens, counted_by = :counted_by, cost = :cost,
    first_us = :first_us, total_us = :total_us, error = :error, request = :request, response = :response,
    words = :words, ended_at = :now
WHERE id = :id AND state = 'running';

-- name: relay_insert | A call that cost nothing, written when it has ended.
INSERT INTO relay_call (id, account_id, key_id, face, model, target, state, holder, streamed, attempts,
    input_tokens, cached_tokens, output_tokens, counted_by, cost, first_us, total_us, error, request, response,
    words, created_at, ended_at)
VALUES (:id, :account_id, :key_id, :face, :model, :target, :state, :holder, :streamed, :attempts,
    :input_tokens, :cached_tokens, :output_tokens, :counted_by, :cost, :first_us, :total_us, :error, :request,
    :response, :words, :now, :now);

-- name: relay_orphans | Calls under way of servers that are gone, all but `holder`, and those that are too old.
SELECT c.id, c.holder, CASE WHEN c.created_at < :before THEN 1 ELSE 0 END AS late
FROM hold h JOIN relay_call c ON c.id = h.id
WHERE h.state = 'pending' AND c.state = 'running' AND (c.holder <> :holder OR c.created_at < :before)
LIMIT 1000;

-- name: relay_abandon | A call whose server died: it failed, and was free.
UPDATE relay_call SET state = 'failed', error = :error, ended_at = :now
WHERE id = :id AND state = 'running' RETURNING id;

-- name: relay_forget | Forget calls that ended long ago; their ids come before those that are made since.
DELETE FROM relay_call WHERE id < :id AND created_at < :before AND state <> 'running' RETURNING id;

-- name: relay_page | An account's calls, newest first, from before a position; an empty filter takes all.
SELECT id, key_id, face, model, target, state, streamed, attempts, input_tokens, cached_tokens, output_tokens,
       counted_by, held, cost, first_us, total_us, error, request, response, created_at, ended_at
FROM relay_call
WHERE account_id = :account_id AND id < :before
  AND (:model = '' OR model = :model) AND (:state = '' OR state = :state)
  AND (:key_id = '' OR key_id = :key_id) AND words LIKE :pattern ESCAPE '\'
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
