ALTER TABLE webhook_outbox DROP COLUMN prediction;
