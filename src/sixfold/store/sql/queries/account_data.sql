-- name: export_predictions | An account's predictions, oldest first.
SELECT id, parent_id, face, model, engine, engine_version, quality, state,
       CASE WHEN withheld = 1 THEN '{}' ELSE inputs END AS inputs, CASE WHEN withheld = 0 THEN output END AS output,
       error, cost, charge,
       created_at, started_at, completed_at
FROM prediction WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_calls | What an account asked of model servers.
SELECT id, key_id, face, model, target, state, input_tokens, cached_tokens, output_tokens, cost, error,
       request, response, created_at, ended_at,
       (SELECT ended.charge FROM relay_call ended WHERE ended.id = relay_known.id) AS charge
FROM relay_known WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_responses | Responses that an account keeps.
SELECT id, previous, server, input, response, created_at FROM relay_response
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_live_sessions | An account's live sessions.
SELECT id, model, engine, quality, hardware, inputs, state, reason, cost, created_at, ready_at, closed_at
FROM session WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_posts | An account's posts.
SELECT id, text, media, content_type, tags, created_at FROM gallery_post
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_characters | An account's characters.
SELECT id, url_name, name, description, greeting, avatar, created_at FROM gallery_character
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_models | An account's models, with all of their versions.
SELECT name || ':' || version AS id, name, version, kind, document, created_at, removed_at FROM own_model
WHERE account_id = :account_id AND name || ':' || version > :after ORDER BY id LIMIT :limit;

-- name: export_audit | What was done to an account.
SELECT id, action, detail, created_at FROM audit
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_media | An account's files.
SELECT name AS id, kind, content_type, size, prediction_id, created_at, expires_at, blob FROM media
WHERE account_id = :account_id AND name > :after AND (expires_at IS NULL OR expires_at > :now)
ORDER BY name LIMIT :limit;

-- name: account_deletion_set | When an account is to be erased; NULL keeps it.
UPDATE account SET closing_at = :closing_at WHERE id = :id AND kind = 'customer' AND email IS NOT NULL
RETURNING id;

-- name: account_deletion_due | Accounts whose time has come.
SELECT id FROM account WHERE closing_at <= :now ORDER BY closing_at LIMIT :limit;

-- name: account_deletion_plans | Plans that are paid by card, of accounts that leave.
SELECT id, subscription FROM account
WHERE closing_at IS NOT NULL AND subscription IS NOT NULL ORDER BY closing_at LIMIT :limit;

-- name: account_deletion_predictions | What still runs for an account.
SELECT id FROM prediction
WHERE account_id = :account_id AND state IN ('queued', 'starting', 'running', 'canceling') ORDER BY id;

-- name: account_deletion_sessions | Live sessions of an account that are still open.
SELECT id FROM session WHERE account_id = :account_id AND closed_at IS NULL ORDER BY id;

-- name: account_deletion_held | Money of an account that is still held, and a plan that it still pays.
SELECT id FROM hold WHERE account_id = :account_id AND state = 'pending'
UNION ALL SELECT id FROM account WHERE id = :account_id AND subscription IS NOT NULL
LIMIT 1;

-- name: erase_outbox | Messages about predictions.
DELETE FROM webhook_outbox WHERE prediction_id IN (SELECT id FROM prediction WHERE account_id = :account_id);

-- name: erase_gallery_tags | Tags of posts.
DELETE FROM gallery_tag WHERE post_id IN (SELECT id FROM gallery_post WHERE account_id = :account_id);

-- name: erase_posts | Posts.
DELETE FROM gallery_post WHERE account_id = :account_id;

-- name: erase_characters | Characters.
DELETE FROM gallery_character WHERE account_id = :account_id;

-- name: erase_upload_folders | Names of folders for uploads.
DELETE FROM upload_folder WHERE account_id = :account_id;

-- name: erase_credential_folders | Names of the folders of keys for uploads.
DELETE FROM credential_folder WHERE account_id = :account_id;

-- name: erase_graph_files | Names of files in graphs.
DELETE FROM graph_file WHERE account_id = :account_id;

-- name: erase_graph_outcomes | Outcomes of nodes.
DELETE FROM graph_outcome WHERE account_id = :account_id;

-- name: erase_graph_forgotten | What was taken out of a graph's history.
DELETE FROM graph_forgotten WHERE account_id = :account_id;

-- name: erase_models | Own models.
DELETE FROM own_model WHERE account_id = :account_id;

-- name: erase_calls | What was asked of model servers.
DELETE FROM relay_call WHERE account_id = :account_id;

-- name: erase_responses | Responses that were kept.
DELETE FROM relay_response WHERE account_id = :account_id;

-- name: erase_standings | Where live sessions stand.
DELETE FROM session_standing WHERE session_id IN (SELECT id FROM session WHERE account_id = :account_id);

-- name: erase_live_sessions | Live sessions.
DELETE FROM session WHERE account_id = :account_id;

-- name: erase_predictions | Predictions.
DELETE FROM prediction WHERE account_id = :account_id;

-- name: erase_statements | Statements of pages.
DELETE FROM memory_statement WHERE account_id = :account_id;

-- name: erase_names | Names of pages.
DELETE FROM memory_name WHERE account_id = :account_id;

-- name: erase_vectors | Vectors of pages.
DELETE FROM memory_vector WHERE account_id = :account_id;

-- name: erase_index | What search knows of pages.
DELETE FROM memory_index WHERE account_id = :account_id;

-- name: erase_changes | The count of changes to the memory.
DELETE FROM memory_change WHERE account_id = :account_id;

-- name: erase_timelines | Entries of timelines.
DELETE FROM timeline_entry WHERE page_id IN (SELECT id FROM page WHERE account_id = :account_id);

-- name: erase_links | Links between pages.
DELETE FROM page_link WHERE page_id IN (SELECT id FROM page WHERE account_id = :account_id);

-- name: erase_collections | Pages in collections.
DELETE FROM page_collection WHERE account_id = :account_id;

-- name: erase_tags | Tags of pages.
DELETE FROM page_tag WHERE account_id = :account_id;

-- name: erase_redirects | Former slugs of pages.
DELETE FROM page_redirect WHERE account_id = :account_id;

-- name: erase_versions | What pages said.
DELETE FROM page_version WHERE account_id = :account_id;

-- name: erase_pages | Pages.
DELETE FROM page WHERE account_id = :account_id;

-- name: erase_folders | Folders of pages.
DELETE FROM memory_folder WHERE account_id = :account_id;

-- name: erase_usage | How much of the memory was used.
DELETE FROM memory_usage WHERE account_id = :account_id;

-- name: erase_spent_tokens | Refresh tokens that were used up.
DELETE FROM oauth_spent WHERE grant_id IN (SELECT id FROM oauth_grant WHERE account_id = :account_id);

-- name: erase_grants | What programs were granted.
DELETE FROM oauth_grant WHERE account_id = :account_id;

-- name: erase_spending | What keys have spent.
DELETE FROM key_spend WHERE key_id IN (SELECT id FROM api_key WHERE account_id = :account_id);

-- name: erase_rates | How much of their rates keys have used.
DELETE FROM key_rate WHERE key_id IN (SELECT id FROM api_key WHERE account_id = :account_id);

-- name: erase_keys | Keys.
DELETE FROM api_key WHERE account_id = :account_id;

-- name: erase_passkeys | Passkeys.
DELETE FROM passkey WHERE account_id = :account_id;

-- name: erase_identities | Identities at a provider.
DELETE FROM identity WHERE account_id = :account_id;

-- name: erase_signins | Sessions and links.
DELETE FROM signin WHERE account_id = :account_id;

-- name: erase_audit | What was done to the account.
DELETE FROM audit WHERE account_id = :account_id;

-- name: erase_media | Nobody finds these files any more, and the sweep takes them and their bytes away.
UPDATE media SET expires_at = :now, prediction_id = NULL, upload_id = NULL WHERE account_id = :account_id;

-- name: erase_descriptions | Entries of the ledger keep their kind and their amount.
UPDATE transfer SET description = kind, request_id = NULL, charge = NULL
WHERE debit = :account_id OR credit = :account_id;

-- name: erase_account | The account is nobody's; its id and its sums stay.
UPDATE account SET email = NULL, password_hash = NULL, webhook_secret = NULL, webhook_sealed = NULL,
                   subscription = NULL, plan = 'free', closing_at = NULL
WHERE id = :account_id;
