-- name: share_insert | Insert a share.
INSERT INTO share (id, account_id, credential_id, token_hash, kind, object_id, title, last_place, has_inputs,
                    is_indexed, created_at, expires_at, member_id, key_id, grantee, team_id)
VALUES (:id, :account_id, :credential_id, :token_hash, :kind, :object_id, :title, :last_place, :has_inputs,
        :is_indexed, :now, :expires_at, :member_id, :key_id, :grantee, :team_id);

-- name: share_count | Count an account's shares.
SELECT COUNT(*) AS total FROM share WHERE account_id = :account_id;

-- name: shares_expired_delete | Delete an account's expired shares and those of ended credentials.
DELETE FROM share WHERE account_id = :account_id AND (expires_at <= :now
  OR NOT {has_valid_credential share} OR NOT {has_valid_key share});

-- name: share_get | Return a share of a tenant.
SELECT * FROM share WHERE id = :id AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: shares_page | Return a page of a tenant's shares that have not ended, newest first; optionally of one object.
SELECT * FROM share WHERE account_id = :account_id AND (:credential_id = '' OR credential_id = :credential_id)
  AND (:kind = '' OR (kind = :kind AND object_id = :object_id)) AND (:pages = 1 OR kind <> 'page')
  AND id < :before AND (expires_at IS NULL OR expires_at > :now)
  AND {has_valid_credential share} AND {has_valid_key share}
ORDER BY id DESC LIMIT :limit;

-- name: share_by_token | Return the share with a token, unless it, its account or its credential has ended or is suspended.
SELECT s.* FROM share s JOIN account a ON a.id = s.account_id
WHERE s.token_hash = :token_hash AND (s.expires_at IS NULL OR s.expires_at > :now)
  AND a.closing_at IS NULL AND a.suspended_at IS NULL
  AND {has_active_member s} AND {has_active_creator s}
  AND {has_valid_credential s} AND {has_valid_key s};

-- name: share_by_token_or_id | Return the share with a token or id, also of a suspended account.
SELECT * FROM share WHERE token_hash = :token_hash OR id = :id;

-- name: shares_received | Return the shares that an account or one of its teams may open, newest first.
SELECT s.*, a.email AS owner FROM share s JOIN account a ON a.id = s.account_id
WHERE s.id IN (
    SELECT d.id FROM share d JOIN account g ON g.email = d.grantee AND g.id = :account_id WHERE d.grantee <> ''
    UNION ALL
    SELECT d.id FROM share d
    JOIN team t ON t.id = d.team_id AND t.account_id = :account_id
    JOIN member m ON m.account_id = t.account_id AND m.person_id = d.account_id
    WHERE d.team_id <> '' AND d.team_id = :team_id)
  AND (:id = '' OR s.id = :id) AND s.id < :before
  AND (s.expires_at IS NULL OR s.expires_at > :now) AND a.closing_at IS NULL AND a.suspended_at IS NULL
  AND {has_active_member s} AND {has_active_creator s}
  AND {has_valid_credential s} AND {has_valid_key s}
ORDER BY s.id DESC LIMIT :limit;

-- name: share_viewed | Count a view of a share.
UPDATE share SET views = views + 1 WHERE id = :id;

-- name: share_end | End a share of a tenant; return no row if there is none.
DELETE FROM share WHERE id = :id AND account_id = :account_id
  AND (:credential_id = '' OR credential_id = :credential_id) RETURNING id;

-- name: shares_end_member | End all shares of a member of an organization.
DELETE FROM share WHERE account_id = :account_id AND member_id = :member_id;

-- name: shares_move | Let the shares of a key end with another one.
UPDATE share SET key_id = :new_id WHERE account_id = :account_id AND key_id = :id AND credential_id = '';

-- name: shares_end_object | End all shares of an object.
DELETE FROM share WHERE account_id = :account_id AND kind = :kind AND object_id = :object_id;

-- name: shares_end_chat | End all shares of a chat and its versions.
DELETE FROM share WHERE account_id = :account_id AND kind = 'chat'
  AND object_id IN (SELECT id FROM relay_conversation WHERE account_id = :account_id AND id {version_of :root});

-- name: erase_shares | Delete the shares by and with an account.
DELETE FROM share WHERE account_id = :account_id
   OR (grantee <> '' AND grantee = (SELECT email FROM account WHERE id = :account_id));

-- name: shares_end_team | End the shares with a team.
DELETE FROM share WHERE team_id = :team_id AND team_id <> '';

-- name: export_shares | Return a page of an account's shares without their tokens, oldest first.
SELECT id, kind, object_id, title, has_inputs, is_indexed, views, created_at, expires_at FROM share
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: share_chat | Return the title and the length of a chat.
SELECT title, items, last_place FROM relay_conversation WHERE account_id = :account_id AND id = :id AND title <> ''
  AND (:credential_id = '' OR credential_id = :credential_id);
