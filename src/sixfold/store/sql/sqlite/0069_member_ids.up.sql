-- Adds the member who set up an invitation, a cost alert or a hook, and the folders whose share has ended.
ALTER TABLE invitation ADD COLUMN member_id TEXT;
ALTER TABLE cost_alert ADD COLUMN member_id TEXT;
ALTER TABLE guardrail ADD COLUMN member_id TEXT;
-- Folders whose pages leave the collection of the share that has ended; written whenever a share is deleted.
CREATE TABLE folder_leaving (
    account_id TEXT NOT NULL REFERENCES account (id),
    folder     TEXT NOT NULL,
    PRIMARY KEY (account_id, folder)
) STRICT;
CREATE INDEX shared_folder_limited ON shared_folder (id) WHERE credential_id <> '';
CREATE TRIGGER shared_folder_deleted AFTER DELETE ON shared_folder
BEGIN
    INSERT INTO folder_leaving (account_id, folder) VALUES (OLD.account_id, OLD.folder) ON CONFLICT DO NOTHING;
END;
