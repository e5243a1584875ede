-- name: ledger_reserve_together | Move amounts of many requests to held, for accounts whose balance covers all of theirs.
WITH total AS (
    SELECT :account_id AS account_id, SUM(:amount) AS amount FROM turns GROUP BY 1
), covered AS (
    UPDATE account SET held = held + total.amount FROM total
    WHERE account.id = total.account_id AND {available account} >= total.amount
    RETURNING id
)
SELECT covered.id, turns.number FROM turns JOIN covered ON covered.id = :account_id;
