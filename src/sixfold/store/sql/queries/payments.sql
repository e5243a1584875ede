-- name: payment_event_insert | An event of the processor; nothing when it was told before.
INSERT INTO payment_event (id, kind, account_id, created_at) VALUES (:id, :kind, :account_id, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: account_set_plan | The plan that an account pays, and by which subscription.
UPDATE account SET plan = :plan, subscription = :subscription WHERE id = :id RETURNING id;

-- name: account_by_subscription | Whose plan a subscription pays.
SELECT * FROM account WHERE subscription = :subscription;
