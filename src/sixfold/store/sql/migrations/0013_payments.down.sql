DROP INDEX account_subscription;
ALTER TABLE account DROP COLUMN subscription;
DROP TABLE payment_event;
