-- name: find_orphaned_holds | Calls under way of servers that are gone, and those that are too old.
WITH held AS MATERIALIZED (
    SELECT h.id, COALESCE(h.about::json ->> 'holder', c.holder) AS holder, h.created_at < :before AS late
    FROM hold h LEFT JOIN relay_call c ON c.id = h.id AND c.state = 'running'
    WHERE h.state = 'pending' AND (h.about IS NOT NULL OR c.id IS NOT NULL)),
gone AS MATERIALIZED (
    SELECT holder FROM (SELECT DISTINCT holder FROM held WHERE holder <> :holder) AS others
    WHERE NOT server_lives(holder))
SELECT id, holder, late::int AS late FROM held WHERE late OR holder IN (SELECT holder FROM gone) LIMIT 1000;

-- name: key_spend_add | Count an amount against a key's day and month; gives those whose budget it fits.
INSERT INTO key_spend (key_id, period, amount)
VALUES (:key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), :amount),
       (:key_id, to_char(to_timestamp(:now / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM'), :amount)
ON CONFLICT (key_id, period) DO UPDATE SET amount = key_spend.amount + excluded.amount
WHERE key_spend.amount + excluded.amount <= CASE length(key_spend.period) WHEN 10 THEN :day ELSE :month END
RETURNING period;
