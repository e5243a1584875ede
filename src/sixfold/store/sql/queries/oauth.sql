-- name: oauth_client_insert | Insert an OAuth client that registered itself.
INSERT INTO oauth_client (id, name, redirect_uris, created_at) VALUES (:id, :name, :redirect_uris, :now);

-- name: oauth_client | Return an OAuth client by its id.
SELECT * FROM oauth_client WHERE id = :id;

-- name: oauth_grant_insert | Insert an OAuth grant whose authorization code has not been exchanged yet.
INSERT INTO oauth_grant
    (id, client_id, account_id, member_id, login_id, scopes, redirect_uri, challenge, code_hash, expires_at, created_at)
VALUES
    (:id, :client_id, :account_id, :member_id, :login_id, :scopes, :redirect_uri, :challenge, :code_hash, :now + :life, :now);

-- name: oauth_grant_by_code | Return the grant of an authorization code, exchanged or not.
SELECT *, CASE WHEN expires_at > :now THEN 1 ELSE 0 END AS living FROM oauth_grant WHERE code_hash = :code_hash;

-- name: oauth_grant_by_refresh | Return the grant whose current or previous refresh token has a hash.
SELECT *, CASE WHEN expires_at > :now THEN 1 ELSE 0 END AS living FROM oauth_grant
WHERE refresh_hash = :refresh_hash OR spent_hash = :refresh_hash;

-- name: oauth_grant_by_spent | Return the grant of a used refresh token of any age.
SELECT g.* FROM oauth_spent s JOIN oauth_grant g ON g.id = s.grant_id WHERE s.hash = :refresh_hash;

-- name: oauth_spent_insert | Record a used refresh token.
INSERT INTO oauth_spent (hash, grant_id) VALUES (:hash, :grant_id) ON CONFLICT DO NOTHING;

-- name: oauth_grant_turn | Rotate a grant's refresh token and key, unless a concurrent request has already rotated them.
UPDATE oauth_grant
SET refresh_hash = :refresh_hash, spent_hash = refresh_hash, key_id = :key_id,
    code_taken_at = COALESCE(code_taken_at, :now), used_at = :now, expires_at = :now + :life
WHERE id = :id AND ended_at IS NULL AND COALESCE(key_id, '') = :old_key_id
RETURNING id;

-- name: oauth_grant_end | End a grant; return no row if it has already ended.
UPDATE oauth_grant SET ended_at = :now WHERE id = :id AND ended_at IS NULL RETURNING key_id, account_id;

-- name: oauth_grant_of_key | Return the active grant whose current key is given.
SELECT * FROM oauth_grant WHERE key_id = :key_id AND ended_at IS NULL;

-- name: oauth_grant_end_of_key | End the grant that issued a key.
UPDATE oauth_grant SET ended_at = :now
WHERE ended_at IS NULL
  AND (key_id = :key_id OR id = (SELECT grant_id FROM api_key WHERE id = :key_id AND grant_id IS NOT NULL))
RETURNING id, key_id;

-- name: oauth_grants_of | Return the 1,000 newest active grants of an account with their clients' names.
SELECT g.id, c.name, g.scopes, g.created_at, g.used_at FROM oauth_grant g JOIN oauth_client c ON c.id = g.client_id
WHERE g.account_id = :account_id AND g.ended_at IS NULL AND g.expires_at > :now
ORDER BY g.created_at DESC, g.id DESC LIMIT 1000;

-- name: oauth_grants_end | End one grant of an account, or all but those of members if `id` is empty; return their keys.
UPDATE oauth_grant SET ended_at = :now
WHERE account_id = :account_id AND ended_at IS NULL AND (id = :id OR (:id = '' AND member_id IS NULL))
RETURNING id, key_id;

-- name: oauth_grants_end_members | End the grants of all members of an account; return their keys.
UPDATE oauth_grant SET ended_at = :now
WHERE account_id = :account_id AND ended_at IS NULL AND member_id IS NOT NULL RETURNING id, key_id;

-- name: oauth_grants_end_login | End the grants that were created in a login session; return their keys.
UPDATE oauth_grant SET ended_at = :now WHERE login_id = :login_id AND ended_at IS NULL RETURNING id, account_id, key_id;

-- name: oauth_sweep_spent | Delete used refresh tokens whose grant no longer exists.
DELETE FROM oauth_spent WHERE NOT EXISTS (SELECT 1 FROM oauth_grant g WHERE g.id = oauth_spent.grant_id);

-- name: oauth_sweep_grants | Delete expired grants.
DELETE FROM oauth_grant WHERE expires_at <= :now RETURNING id;

-- name: oauth_sweep_clients | Delete OAuth clients registered before `before` that have no grant.
DELETE FROM oauth_client
WHERE created_at < :before AND NOT EXISTS (SELECT 1 FROM oauth_grant g WHERE g.client_id = oauth_client.id)
RETURNING id;
