ALTER TABLE relay_call DROP COLUMN tag;
DROP TABLE cost_alert;
DROP TABLE content_log;
DROP TABLE content_logging;
