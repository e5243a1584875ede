-- name: key_spend_add | Count an amount against a key's day and month; gives those whose budget it fits.
INSERT INTO key_spend (key_id, period, amount)
VALUES (:key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), :amount),
       (:key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM'), :amount)
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
WHERE key_spend.amount + excluded.amount <= CASE length(key_spend.period) WHEN 10 THEN :day ELSE :month END
RETURNING period;
