-- name: payment_event_insert | Insert an event of the payment processor; return no row if it was received before.
INSERT INTO payment_event (id, kind, account_id, created_at) VALUES (:id, :kind, :account_id, :now)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: account_set_plan | Set an account's plan and subscription.
UPDATE account SET plan = :plan, subscription = :subscription WHERE id = :id RETURNING id;

-- name: account_by_subscription | Return the account of a subscription.
SELECT * FROM account WHERE subscription = :subscription;

-- name: payment_seen | Insert a payment or increment the number of its updates.
INSERT INTO payment (id, moves) VALUES (:id, 1)
ON CONFLICT (id) DO UPDATE SET moves = payment.moves + 1;

-- name: payment_paid | Add an amount credited to an account to a payment.
INSERT INTO payment (id, account_id, paid, moves) VALUES (:id, :account_id, :micros, 1)
ON CONFLICT (id) DO UPDATE
SET account_id = excluded.account_id, paid = payment.paid + excluded.paid, moves = payment.moves + 1;

-- name: payment_refunded | Set the total refunded amount of a payment; it never decreases.
INSERT INTO payment (id, refunded, moves) VALUES (:id, :total, 1)
ON CONFLICT (id) DO UPDATE
SET refunded = CASE WHEN excluded.refunded > payment.refunded THEN excluded.refunded ELSE payment.refunded END,
    moves = payment.moves + 1;

-- name: payment_disputed | Insert or update a dispute; its amount and flags never decrease.
INSERT INTO payment_dispute (id, payment_id, amount, withdrawn, reinstated)
VALUES (:id, :payment_id, :amount, :withdrawn, :reinstated)
ON CONFLICT (id) DO UPDATE
SET amount = CASE WHEN excluded.amount > payment_dispute.amount THEN excluded.amount
                  ELSE payment_dispute.amount END,
    withdrawn = CASE WHEN excluded.withdrawn = 1 THEN 1 ELSE payment_dispute.withdrawn END,
    reinstated = CASE WHEN excluded.reinstated = 1 THEN 1 ELSE payment_dispute.reinstated END;

-- name: payment_standing | Return a payment with the sum withdrawn by disputes and not reinstated.
SELECT p.*, CAST(COALESCE((SELECT SUM(d.amount) FROM payment_dispute d
                           WHERE d.payment_id = p.id AND d.withdrawn = 1 AND d.reinstated = 0), 0) AS BIGINT) AS disputed
FROM payment p WHERE p.id = :id;

-- name: payment_taken_back | Set the amount taken back from the account for a payment.
UPDATE payment SET taken_back = :taken_back WHERE id = :id;

-- name: subscription_by_id | Return a subscription by its id.
SELECT * FROM payment_subscription WHERE id = :id;

-- name: subscription_put | Insert or update a subscription.
INSERT INTO payment_subscription (id, account_id, plan, state, told_at)
VALUES (:id, :account_id, :plan, :state, :told_at)
ON CONFLICT (id) DO UPDATE
SET account_id = excluded.account_id, plan = excluded.plan, state = excluded.state, told_at = excluded.told_at;

-- name: subscriptions_living | Return an account's live subscriptions with a plan, newest first.
SELECT id, plan FROM payment_subscription
WHERE account_id = :account_id AND state = 'live' AND plan IS NOT NULL ORDER BY told_at DESC, id DESC;

-- name: subscriptions_end | Mark all subscriptions of an account as over.
UPDATE payment_subscription SET state = 'over' WHERE account_id = :account_id;
