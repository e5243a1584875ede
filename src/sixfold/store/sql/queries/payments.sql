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

-- name: payment_invoiced | Set the invoice that a payment paid, and its amount.
INSERT INTO payment (id, invoice, paid, moves) VALUES (:id, :invoice, :micros, 1)
ON CONFLICT (id) DO UPDATE SET invoice = excluded.invoice, paid = excluded.paid, moves = payment.moves + 1;

-- name: payment_refunded | Set the total refunded amount of a payment from its latest report; of equally late ones the larger.
INSERT INTO payment (id, refunded, refunded_at, moves) VALUES (:id, :total, :reported_at, 1)
ON CONFLICT (id) DO UPDATE
SET refunded = CASE WHEN (excluded.refunded_at, excluded.refunded) > (payment.refunded_at, payment.refunded)
                    THEN excluded.refunded ELSE payment.refunded END,
    refunded_at = CASE WHEN excluded.refunded_at > payment.refunded_at THEN excluded.refunded_at
                       ELSE payment.refunded_at END,
    moves = payment.moves + 1;

-- name: payment_refund_failed | Insert a failed refund, with its earliest report.
INSERT INTO payment_refund_failed (id, payment_id, amount, failed_at)
VALUES (:id, :payment_id, :amount, :failed_at)
ON CONFLICT (id) DO UPDATE SET failed_at = excluded.failed_at
WHERE excluded.failed_at < payment_refund_failed.failed_at;

-- name: payment_disputed | Insert or update a dispute; its amount, flags and times never decrease.
INSERT INTO payment_dispute (id, payment_id, amount, withdrawn, reinstated, withdrawn_at, reinstated_at)
VALUES (:id, :payment_id, :amount, :withdrawn, :reinstated,
        CASE WHEN :withdrawn = 1 THEN :reported_at ELSE 0 END, CASE WHEN :reinstated = 1 THEN :reported_at ELSE 0 END)
ON CONFLICT (id) DO UPDATE
SET amount = CASE WHEN excluded.amount > payment_dispute.amount THEN excluded.amount
                  ELSE payment_dispute.amount END,
    withdrawn = CASE WHEN excluded.withdrawn = 1 THEN 1 ELSE payment_dispute.withdrawn END,
    reinstated = CASE WHEN excluded.reinstated = 1 THEN 1 ELSE payment_dispute.reinstated END,
    withdrawn_at = CASE WHEN excluded.withdrawn_at > payment_dispute.withdrawn_at THEN excluded.withdrawn_at
                        ELSE payment_dispute.withdrawn_at END,
    reinstated_at = CASE WHEN excluded.reinstated_at > payment_dispute.reinstated_at THEN excluded.reinstated_at
                         ELSE payment_dispute.reinstated_at END;

-- name: payment_standing | Return a payment with its amounts of failed refunds and of disputes that stand.
SELECT p.*,
       CAST(COALESCE((SELECT SUM(f.amount) FROM payment_refund_failed f
                      WHERE f.payment_id = p.id AND f.failed_at >= p.refunded_at), 0) AS BIGINT) AS failed,
       CAST(COALESCE((SELECT SUM(d.amount) FROM payment_dispute d
                      WHERE d.payment_id = p.id AND d.withdrawn = 1
                        AND (d.reinstated = 0 OR d.withdrawn_at > d.reinstated_at)), 0) AS BIGINT) AS disputed
FROM payment p WHERE p.id = :id;

-- name: payment_taken_back | Set the amount taken back from the account for a payment.
UPDATE payment SET taken_back = :taken_back WHERE id = :id;

-- name: subscription_by_id | Return a subscription by its id.
SELECT * FROM payment_subscription WHERE id = :id;

-- name: subscription_put | Insert or update a subscription.
INSERT INTO payment_subscription (id, account_id, plan, state, told_at, latest_invoice)
VALUES (:id, :account_id, :plan, :state, :told_at, :invoice)
ON CONFLICT (id) DO UPDATE
SET account_id = excluded.account_id, plan = excluded.plan, state = excluded.state, told_at = excluded.told_at,
    latest_invoice = excluded.latest_invoice;

-- name: subscriptions_of_invoice | Return the accounts of subscriptions whose latest invoice this is.
SELECT account_id FROM payment_subscription WHERE latest_invoice = :invoice AND account_id IS NOT NULL;

-- name: subscriptions_living | Return an account's live subscriptions with a plan whose latest invoice was not paid back, newest first.
SELECT s.id, s.plan FROM payment_subscription s
WHERE s.account_id = :account_id AND s.state = 'live' AND s.plan IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM payment p
                  WHERE p.invoice = s.latest_invoice AND p.paid > 0 AND p.taken_back >= p.paid)
ORDER BY s.told_at DESC, s.id DESC;

-- name: subscriptions_end | Mark all subscriptions of an account as over.
UPDATE payment_subscription SET state = 'over' WHERE account_id = :account_id;
