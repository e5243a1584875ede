-- Adds the number and size of the pages of each account.
-- How many pages an account has, and the bytes of all their versions: kept with each write, in its transaction.
ALTER TABLE memory_usage ADD COLUMN pages INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory_usage ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE memory_usage SET
    pages = (SELECT COUNT(*) FROM page p WHERE p.account_id = memory_usage.account_id AND p.deleted_at IS NULL),
    bytes = COALESCE((
        SELECT SUM(512 + LENGTH(CAST(v.body AS BLOB)) + LENGTH(CAST(v.head AS BLOB)) + LENGTH(CAST(v.title AS BLOB)) + LENGTH(CAST(v.slug AS BLOB)) + LENGTH(CAST(v.path AS BLOB)))
        FROM page_version v WHERE v.account_id = memory_usage.account_id), 0);
