-- Adds rights of API keys.
-- A key has rights beside its limits, as names separated by blanks, and says whether a program got it by OAuth.
-- NULL is what a server of the version before stores: such rights follow from the limits. No key gains a right
-- here; `scope` names a limit only where there is one. A prediction names the key that ordered it, for what it
-- orders itself. `webhook_sealed` takes the place of `webhook_secret`, which only the version before reads.
ALTER TABLE api_key ADD COLUMN rights TEXT;
ALTER TABLE api_key ADD COLUMN origin TEXT NOT NULL DEFAULT 'key' CHECK (origin IN ('key', 'oauth'));
ALTER TABLE prediction ADD COLUMN key_id TEXT;
ALTER TABLE account ADD COLUMN webhook_sealed TEXT;
CREATE INDEX oauth_grant_by_key ON oauth_grant (key_id);
CREATE INDEX account_unsealed ON account (id) WHERE webhook_secret IS NOT NULL;
UPDATE api_key SET origin = 'oauth' WHERE id IN (SELECT key_id FROM oauth_grant);
UPDATE api_key SET rights = (
    SELECT CASE
        WHEN ' ' || g.scopes || ' ' LIKE '% models %' THEN 'run memory.read memory.write'
        WHEN ' ' || g.scopes || ' ' LIKE '% memory %' THEN 'memory.read memory.write'
        ELSE 'memory.read' END
    FROM oauth_grant g WHERE g.key_id = api_key.id)
WHERE origin = 'oauth';
UPDATE api_key SET rights = CASE
    WHEN scope LIKE '%"services":%'
        AND (scope LIKE '%"read_only":%' OR scope LIKE '%"memory":%' OR scope LIKE '%"collections":%') THEN ''
    WHEN scope LIKE '%"read_only":%' THEN 'memory.read'
    WHEN scope LIKE '%"memory":%' OR scope LIKE '%"collections":%' THEN 'memory.read memory.write'
    WHEN scope LIKE '%"services":%' THEN 'run'
    WHEN scope LIKE '%"budget_day":%' OR scope LIKE '%"budget_month":%'
        THEN 'run memory.read memory.write account.read'
    WHEN scope = '{}' AND (SELECT kind FROM account a WHERE a.id = api_key.account_id) = 'operator'
        THEN 'run memory.read memory.write account.read account.manage operate'
    ELSE 'run memory.read memory.write account.read account.manage' END
WHERE rights IS NULL;
