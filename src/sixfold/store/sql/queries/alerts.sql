-- name: alert_insert | Insert a cost alert.
INSERT INTO cost_alert (id, account_id, key_id, period, threshold, url, member_id, by_operator, created_at)
VALUES (:id, :account_id, :key_id, :period, :threshold, :url, :member_id, :by_operator, :now);

-- name: alert_get | Return a cost alert.
SELECT * FROM cost_alert WHERE account_id = :account_id AND id = :id;

-- name: alert_by_id | Return a cost alert of any account.
SELECT * FROM cost_alert WHERE id = :id;

-- name: alerts_of_all | Return the cost alerts of all accounts with their e-mail addresses, newest first.
SELECT c.*, a.email FROM cost_alert c JOIN account a ON a.id = c.account_id
WHERE c.id < :before_id ORDER BY c.id DESC LIMIT :limit;

-- name: alerts_of | Return the cost alerts of an account, oldest first; with `operators` also those by operators.
SELECT * FROM cost_alert WHERE account_id = :account_id AND by_operator <= :operators ORDER BY id;

-- name: alert_delete | Delete a cost alert, with `operators` also one by an operator; return no row if there is none.
DELETE FROM cost_alert WHERE account_id = :account_id AND id = :id AND by_operator <= :operators RETURNING id;

-- name: alerts_page | Return a page of all cost alerts of open accounts.
SELECT c.* FROM cost_alert c JOIN account a ON a.id = c.account_id
WHERE c.id > :after AND a.closing_at IS NULL ORDER BY c.id LIMIT :limit;

-- name: alert_spending | Return what an account, or one of its keys, has spent in a time, less refunds of charges since the period's start; the id of a refund is `refund:` and that of its hold.
SELECT CAST(SUM(entries.amount) AS BIGINT) AS micros
FROM (SELECT kind, hold_id AS paid, amount FROM transfer
      WHERE debit = :account_id AND created_at >= :since AND created_at < :until
      UNION ALL
      SELECT kind, substr(id, 8), -amount FROM transfer r
      WHERE credit = :account_id AND created_at >= :since AND created_at < :until
        AND EXISTS (SELECT 1 FROM transfer c WHERE c.hold_id = substr(r.id, 8) AND c.created_at >= :start)) AS entries
LEFT JOIN relay_call ON relay_call.id = entries.paid AND :key_id <> ''
LEFT JOIN prediction ON prediction.id = entries.paid AND :key_id <> ''
LEFT JOIN hold ON hold.id = entries.paid AND :key_id <> ''
WHERE entries.kind IN ('charge', 'chat', 'session', 'refund')
  AND (:key_id = '' OR substr(COALESCE(relay_call.key_id, prediction.key_id, hold.key_id), 1, length(:key_id)) = :key_id
    OR substr(COALESCE(relay_call.key_id, prediction.key_id, hold.key_id), 1, length(:key_id)) IN (
      SELECT k.id FROM api_key k JOIN api_key c ON COALESCE(c.budget_id, c.id) = COALESCE(k.budget_id, k.id)
      WHERE c.id = :key_id AND k.account_id = c.account_id));

-- name: alert_count | Store what was counted unless another server has; mark the alert as due if it is reached.
UPDATE cost_alert SET counted_for = :counted_for, counted_until = :counted_until, amount = :amount,
    sent_for = CASE WHEN :is_due = 1 THEN :counted_for ELSE sent_for END,
    sent_amount = CASE WHEN :is_due = 1 THEN :amount ELSE sent_amount END,
    message_id = CASE WHEN :is_due = 1 THEN :message_id ELSE message_id END,
    attempts = CASE WHEN :is_due = 1 THEN 0 ELSE attempts END,
    reached_at = CASE WHEN :is_due = 1 THEN :now ELSE reached_at END,
    due_at = CASE WHEN :is_due = 1 THEN :now ELSE due_at END
WHERE id = :id AND counted_until = :before;

-- name: alerts_due_accounts | Return the accounts with alerts that are due to be sent, longest due first; those of suspended admins wait.
SELECT account_id, MIN(due_at) AS due_since, CAST(:now AS BIGINT) AS now FROM cost_alert
WHERE due_at IS NOT NULL AND due_at <= :now AND {has_active_admin cost_alert}
GROUP BY account_id ORDER BY due_since, account_id LIMIT :limit;

-- name: alerts_claim | Claim the alerts of an account that were due to be sent at a time.
UPDATE cost_alert SET due_at = :now + :lease, attempts = attempts + 1
WHERE id IN (
    SELECT id FROM cost_alert d WHERE account_id = :account_id AND due_at IS NOT NULL AND due_at <= :before
      AND {has_active_admin d}
    ORDER BY due_at LIMIT :limit)
  AND due_at <= :before
RETURNING *, CAST(:now AS BIGINT) AS now;

-- name: alert_sent | Store the result of sending an alert, and when to try again.
UPDATE cost_alert SET due_at = :due_at, error = :error WHERE id = :id;

-- name: alerts_end_member | Delete the cost alerts that a member of an organization created.
DELETE FROM cost_alert WHERE account_id = :account_id AND member_id = :member_id;

-- name: erase_alerts | Delete an account's cost alerts.
DELETE FROM cost_alert WHERE account_id = :account_id;
