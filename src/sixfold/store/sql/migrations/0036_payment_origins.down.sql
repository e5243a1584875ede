DROP INDEX prediction_free;
DROP TABLE payment_refund_failed;
DROP INDEX payment_subscription_invoice;
ALTER TABLE payment_subscription DROP COLUMN latest_invoice;
ALTER TABLE payment_dispute DROP COLUMN reinstated_at;
ALTER TABLE payment_dispute DROP COLUMN withdrawn_at;
DROP INDEX payment_invoice;
ALTER TABLE payment DROP COLUMN refunded_at;
ALTER TABLE payment DROP COLUMN invoice;
