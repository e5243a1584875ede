DROP TABLE webhook_outbox;
ALTER TABLE prediction DROP COLUMN webhook;
