DROP TRIGGER shared_folder_deleted;
DROP INDEX shared_folder_limited;
DROP TABLE folder_leaving;
ALTER TABLE guardrail DROP COLUMN member_id;
ALTER TABLE cost_alert DROP COLUMN member_id;
ALTER TABLE invitation DROP COLUMN member_id;
