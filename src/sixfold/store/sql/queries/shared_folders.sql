-- name: shared_folder_put | Share a folder, or change a share that exists; return no row for one of another credential.
INSERT INTO shared_folder (id, account_id, folder, grantee, team_id, may_write, created_at, credential_id, member_id, key_id)
VALUES (:id, :account_id, :folder, :grantee, :team_id, :may_write, :now, :credential_id, :member_id, :key_id)
ON CONFLICT (account_id, folder, grantee, team_id) DO UPDATE SET may_write = excluded.may_write,
    credential_id = excluded.credential_id, member_id = excluded.member_id, key_id = excluded.key_id
WHERE excluded.credential_id IN ('', shared_folder.credential_id)
RETURNING id;

-- name: shared_folders_expired_delete | Delete an account's shares of folders of ended credentials.
DELETE FROM shared_folder AS f WHERE f.account_id = :account_id
  AND NOT ({has_valid_credential f} AND {has_valid_key f});

-- name: shared_folders_limited | Return the next shares of folders by keys and programs, of all accounts.
SELECT id, COALESCE(key_id, credential_id) AS credential_id FROM shared_folder
WHERE (credential_id <> '' OR key_id IS NOT NULL) AND id > :after ORDER BY id LIMIT :limit;

-- name: shared_folders_move | Let the shared folders of a key end with another one.
UPDATE shared_folder SET key_id = :new_id
WHERE account_id = :account_id AND key_id = :id AND credential_id = '';

-- name: credential_valid | Return a key or an OAuth grant that has not ended.
SELECT id FROM api_key WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
UNION ALL
SELECT id FROM oauth_grant WHERE id = :id AND ended_at IS NULL AND expires_at > :now;

-- name: shared_folder_sweep | Delete the share of a folder whose credential has ended.
DELETE FROM shared_folder WHERE id = :id;

-- name: folders_leaving | Return folders of which a share has ended.
SELECT account_id, folder FROM folder_leaving ORDER BY account_id, folder LIMIT :limit;

-- name: folder_left | Forget that a share of a folder has ended.
DELETE FROM folder_leaving WHERE account_id = :account_id AND folder = :folder;

-- name: erase_folders_leaving | Delete the folders of an account of which a share has ended.
DELETE FROM folder_leaving WHERE account_id = :account_id;

-- name: shared_folders_of | Return the folders that a tenant shares, with their grantees, by folder.
SELECT f.*, '' AS owner, t.name AS team, o.email AS organization FROM shared_folder f
LEFT JOIN team t ON t.id = f.team_id LEFT JOIN account o ON o.id = t.account_id
WHERE f.account_id = :account_id AND (:credential_id = '' OR f.credential_id = :credential_id)
  AND {has_valid_credential f} AND {has_valid_key f}
ORDER BY f.folder, f.id;

-- name: shared_folder_names | Return the folders that an account shares.
SELECT DISTINCT folder FROM shared_folder WHERE account_id = :account_id ORDER BY folder;

-- name: shared_folders_received | Return the folders that are shared with an account or one of its teams.
SELECT f.*, a.email AS owner, t.name AS team, o.email AS organization FROM shared_folder f
JOIN account a ON a.id = f.account_id
LEFT JOIN team t ON t.id = f.team_id LEFT JOIN account o ON o.id = t.account_id
WHERE f.id IN (
    SELECT d.id FROM shared_folder d JOIN account g ON g.email = d.grantee AND g.id = :account_id
    WHERE d.grantee <> ''
    UNION ALL
    SELECT d.id FROM shared_folder d
    JOIN team s ON s.id = d.team_id AND s.account_id = :account_id
    JOIN member m ON m.account_id = s.account_id AND m.person_id = d.account_id
    WHERE d.team_id <> '' AND d.team_id = :team_id)
  AND a.closing_at IS NULL AND a.suspended_at IS NULL AND (:id = '' OR f.id = :id)
  AND {has_active_admin f}
  AND {has_valid_credential f} AND {has_valid_key f}
ORDER BY a.email, f.folder, f.id LIMIT :limit;

-- name: shared_folder_end | End the share of a folder; return no row if the tenant has none.
DELETE FROM shared_folder WHERE id = :id AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id) RETURNING folder;

-- name: shared_folders_end_member | End the shares of folders by a member of an organization.
DELETE FROM shared_folder WHERE account_id = :account_id AND member_id = :member_id;

-- name: shared_folders_end_team | End the shares of folders with a team.
DELETE FROM shared_folder WHERE team_id = :team_id AND team_id <> '';

-- name: erase_shared_folders | Delete the shares of folders by and with an account.
DELETE FROM shared_folder WHERE account_id = :account_id
   OR (grantee <> '' AND grantee = (SELECT email FROM account WHERE id = :account_id));

-- name: export_shared_folders | Return the folders that an account shares, oldest first.
SELECT id, folder, grantee, team_id, may_write, created_at FROM shared_folder
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: collection_outside | Return a page of a collection that is outside a folder.
SELECT p.slug FROM page_collection c JOIN page p ON p.id = c.page_id
WHERE c.account_id = :account_id AND c.collection = :collection
  AND NOT (p.slug = :folder OR (p.slug >= :prefix AND p.slug < :prefix_end)) LIMIT 1;

-- name: pages_to_enter | Return pages of a folder that are not in its collection.
SELECT p.*, v.head, v.body, v.path FROM page p
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE p.account_id = :account_id AND p.deleted_at IS NULL
  AND (p.slug = :folder OR (p.slug >= :prefix AND p.slug < :prefix_end))
  AND NOT EXISTS (SELECT 1 FROM page_collection c WHERE c.page_id = p.id AND c.collection = :collection)
LIMIT :limit;

-- name: pages_to_leave | Return pages of a collection.
SELECT p.*, v.head, v.body, v.path FROM page_collection c JOIN page p ON p.id = c.page_id
JOIN page_version v ON v.page_id = p.id AND v.version = p.version
WHERE c.account_id = :account_id AND c.collection = :collection AND p.deleted_at IS NULL LIMIT :limit;

-- name: pages_set_collections | Set the collections of pages.
UPDATE page SET collections = (
    SELECT json_extract(value, '$.collections') FROM json_each(:rows) WHERE json_extract(value, '$.id') = page.id)
WHERE account_id = :account_id AND id IN (SELECT json_extract(value, '$.id') FROM json_each(:rows));

-- name: versions_set_collections | Set the collections of the current versions of pages.
UPDATE page_version SET collections = (
    SELECT json_extract(value, '$.collections') FROM json_each(:rows)
    WHERE json_extract(value, '$.id') = page_version.page_id)
WHERE account_id = :account_id AND ended_at IS NULL
  AND page_id IN (SELECT json_extract(value, '$.id') FROM json_each(:rows));

-- name: team_owner | Return the organization of a team.
SELECT account_id FROM team WHERE id = :id;
