-- Adds the member who set up an invitation, a cost alert or a hook, and the folders whose share has ended.
ALTER TABLE invitation ADD COLUMN member_id TEXT COLLATE "C";
ALTER TABLE cost_alert ADD COLUMN member_id TEXT COLLATE "C";
ALTER TABLE guardrail ADD COLUMN member_id TEXT COLLATE "C";
-- Folders whose pages leave the collection of the share that has ended; written whenever a share is deleted.
CREATE TABLE folder_leaving (
    account_id TEXT COLLATE "C" NOT NULL REFERENCES account (id),
    folder     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (account_id, folder)
);
CREATE INDEX shared_folder_limited ON shared_folder (id) WHERE credential_id <> '';
CREATE FUNCTION folder_leaves() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO folder_leaving (account_id, folder) VALUES (OLD.account_id, OLD.folder) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER shared_folder_deleted AFTER DELETE ON shared_folder
FOR EACH ROW EXECUTE FUNCTION folder_leaves();
