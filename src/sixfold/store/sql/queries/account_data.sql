-- name: export_predictions | Return an account's next prediction; a batch of large rows would be unbounded.
SELECT id, parent_id, face, model, engine, engine_version, quality, state,
       CASE WHEN withheld = 1 THEN '{}' ELSE inputs END AS inputs, CASE WHEN withheld = 0 THEN output END AS output,
       error, cost, charge,
       created_at, started_at, completed_at
FROM prediction WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT 1;

-- name: export_calls | Return an account's next gateway call.
SELECT id, key_id, face, model, target, state, input_tokens, cached_tokens, output_tokens, cost, error,
       request, response, created_at, ended_at,
       (SELECT ended.charge FROM relay_call ended WHERE ended.id = relay_known.id) AS charge
FROM relay_known WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT 1;

-- name: export_responses | Return an account's next stored response.
SELECT id, previous, server, conversation, input, response, created_at FROM relay_response
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT 1;

-- name: export_files | Return a page of an account's files, ordered by id; their content is that of the media file.
SELECT id, filename, purpose, content_type, size, media, created_at, expires_at FROM account_file
WHERE account_id = :account_id AND id > :after AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :limit;

-- name: export_conversations | Return an account's next conversation.
SELECT id, title, parent, draft, cost, metadata, items, size, created_at FROM relay_conversation
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT 1;

-- name: export_conversation_items | Return the next item of an account's conversations; `id` has a conversation and a place.
SELECT conversation_id || '/' || place AS id, conversation_id, item, detail FROM relay_conversation_item
WHERE account_id = :account_id
  AND (conversation_id, place) > (:parent_id, :number)
ORDER BY conversation_id, place LIMIT 1;

-- name: export_objects | Return a page of the objects that model servers store for an account, ordered by id.
SELECT id, MAX(server) AS server, MAX(response_id) AS response_id, MAX(created_at) AS created_at FROM relay_object
WHERE account_id = :account_id AND id > :after GROUP BY id ORDER BY id LIMIT :limit;

-- name: export_batches | Return a page of an account's batches, ordered by id.
SELECT id, response_id, dialect, endpoint, state, input_file_id, metadata, total, succeeded, failed, errors,
       output_file_id, error_file_id, created_at, expires_at, in_progress_at, finalizing_at, cancelling_at, ended_at FROM batch
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_batch_answers | Return the answer to the next line of a batch, else to the first of an account's next unfinished batch.
SELECT * FROM (
    SELECT l.batch_id || ':' || l.number AS id, l.custom_id, l.status, l.request_id, l.response
    FROM batch b JOIN batch_line l ON l.batch_id = b.id
    WHERE b.account_id = :account_id AND b.id = :parent_id AND l.number > :number AND l.state = 'done'
    ORDER BY l.number LIMIT 1
) AS same_batch
UNION ALL
SELECT * FROM (
    SELECT l.batch_id || ':' || l.number AS id, l.custom_id, l.status, l.request_id, l.response
    FROM batch b JOIN batch_line l ON l.batch_id = b.id AND l.state = 'done'
    WHERE b.account_id = :account_id AND b.id > :parent_id
    ORDER BY b.id, l.number LIMIT 1
) AS next_batch
LIMIT 1;

-- name: export_live_sessions | Return a page of an account's live sessions, oldest first.
SELECT id, model, engine, quality, hardware, inputs, state, reason, cost, created_at, ready_at, closed_at
FROM session WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_posts | Return an account's next gallery post.
SELECT id, text, media, content_type, tags, is_unlisted, model, inputs, created_at FROM gallery_post
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT 1;

-- name: export_characters | Return a page of an account's gallery characters, oldest first.
SELECT id, url_name, name, description, greeting, avatar, created_at FROM gallery_character
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_models | Return a page of an account's custom models in all versions, including removed ones.
SELECT name || ':' || version AS id, name, version, kind, document, created_at, removed_at FROM own_model
WHERE account_id = :account_id AND name || ':' || version > :after ORDER BY id LIMIT :limit;

-- name: export_members | Return a page of an account's members and of the memberships of its person, ordered by id.
SELECT m.id, m.account_id, o.email AS organization, p.email AS person, m.role, m.team_id, m.source, m.budget_day,
    m.budget_month, m.created_at
FROM member m JOIN account o ON o.id = m.account_id JOIN account p ON p.id = m.person_id
WHERE (m.account_id = :account_id OR m.person_id = :account_id) AND m.id > :after ORDER BY m.id LIMIT :limit;

-- name: export_teams | Return a page of an account's teams, ordered by id.
SELECT id, name, budget_day, budget_month, created_at FROM team
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_invitations | Return a page of an account's invitations without their tokens, ordered by id.
SELECT id, email, role, team_id, invited_by, created_at, expires_at FROM invitation
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT :limit;

-- name: export_audit | Return the next entry of an account's audit log.
SELECT id, action, detail, created_at FROM audit
WHERE account_id = :account_id AND id > :after ORDER BY id LIMIT 1;

-- name: export_media | Return a page of an account's unexpired media files, ordered by name.
SELECT name AS id, file_name, kind, content_type, size, prediction_id, created_at, expires_at, blob FROM media
WHERE account_id = :account_id AND name > :after AND (expires_at IS NULL OR expires_at > :now)
ORDER BY name LIMIT :limit;

-- name: account_deletion_set | Set or clear (NULL) the time at which a customer's account is to be erased; return no row if an operator has set it and `by_operator` is 0.
UPDATE account SET closing_at = :closing_at,
                   closed_by_operator = CASE WHEN :closing_at IS NULL THEN 0 ELSE :by_operator END
WHERE id = :id AND kind = 'customer' AND email IS NOT NULL AND closed_by_operator <= :by_operator
RETURNING id;

-- name: account_deletion_due | Return accounts whose scheduled erasure is due, at most a limit.
SELECT id FROM account WHERE closing_at <= :now ORDER BY closing_at LIMIT :limit;

-- name: account_deletion_plans | Return accounts scheduled for erasure that still have a subscription, at most a limit.
SELECT id, subscription FROM account
WHERE closing_at IS NOT NULL AND subscription IS NOT NULL ORDER BY closing_at LIMIT :limit;

-- name: account_deletion_predictions | Return the ids of an account's unfinished predictions.
SELECT id FROM prediction
WHERE account_id = :account_id AND state IN ('queued', 'starting', 'running', 'canceling') ORDER BY id;

-- name: account_deletion_sessions | Return the ids of an account's open live sessions.
SELECT id FROM session WHERE account_id = :account_id AND closed_at IS NULL ORDER BY id;

-- name: account_deletion_held | Return one pending hold of an account, or the account itself if it has a subscription.
SELECT id FROM hold WHERE account_id = :account_id AND state = 'pending'
UNION ALL SELECT id FROM account WHERE id = :account_id AND subscription IS NOT NULL
LIMIT 1;

-- name: erase_outbox | Delete webhook deliveries about an account's predictions.
DELETE FROM webhook_outbox WHERE prediction_id IN (SELECT id FROM prediction WHERE account_id = :account_id);

-- name: erase_gallery_tags | Delete the tags of an account's gallery posts.
DELETE FROM gallery_tag WHERE post_id IN (SELECT id FROM gallery_post WHERE account_id = :account_id);

-- name: erase_posts | Delete an account's gallery posts.
DELETE FROM gallery_post WHERE account_id = :account_id;

-- name: erase_characters | Delete an account's gallery characters.
DELETE FROM gallery_character WHERE account_id = :account_id;

-- name: erase_upload_folders | Delete the names of an account's upload folders.
DELETE FROM upload_folder WHERE account_id = :account_id;

-- name: erase_credential_folders | Delete the names of the upload folders of an account's credentials.
DELETE FROM credential_folder WHERE account_id = :account_id;

-- name: erase_graph_files | Delete the names of files in an account's workflows.
DELETE FROM graph_file WHERE account_id = :account_id;

-- name: erase_graph_outcomes | Delete an account's cached node outputs.
DELETE FROM graph_outcome WHERE account_id = :account_id;

-- name: erase_replies | Delete the stored responses of an account.
DELETE FROM idempotency WHERE account_id = :account_id;

-- name: erase_storage_usage | Delete the sums of an account's stored bytes.
DELETE FROM storage_usage WHERE account_id = :account_id;

-- name: erase_graph_sources | Delete the records of the runs whose cached outputs an account's runs used.
DELETE FROM graph_source WHERE account_id = :account_id;

-- name: erase_graph_forgotten | Delete the record of predictions removed from an account's workflow history.
DELETE FROM graph_forgotten WHERE account_id = :account_id;

-- name: erase_models | Delete an account's custom models.
DELETE FROM own_model WHERE account_id = :account_id;

-- name: erase_calls | Delete an account's gateway calls.
DELETE FROM relay_call WHERE account_id = :account_id;

-- name: erase_responses | Delete an account's stored responses.
DELETE FROM relay_response WHERE account_id = :account_id;

-- name: erase_batch_lines | Delete the lines of an account's batches.
DELETE FROM batch_line WHERE batch_id IN (SELECT id FROM batch WHERE account_id = :account_id);

-- name: erase_batches | Delete an account's batches.
DELETE FROM batch WHERE account_id = :account_id;

-- name: erase_files | Delete an account's files; their bytes go with its media files.
DELETE FROM account_file WHERE account_id = :account_id;

-- name: erase_file_parts | Delete the parts of an account's uploads.
DELETE FROM file_part WHERE upload_id IN (SELECT id FROM file_upload WHERE account_id = :account_id);

-- name: erase_file_uploads | Delete an account's uploads in parts.
DELETE FROM file_upload WHERE account_id = :account_id;

-- name: erase_conversations | Delete an account's conversations with their items.
DELETE FROM relay_conversation WHERE account_id = :account_id;

-- name: erase_objects | Forget which objects model servers store for an account.
DELETE FROM relay_object WHERE account_id = :account_id;

-- name: erase_standings | Delete the saved states of an account's live sessions.
DELETE FROM session_standing WHERE session_id IN (SELECT id FROM session WHERE account_id = :account_id);

-- name: erase_live_sessions | Delete an account's live sessions.
DELETE FROM session WHERE account_id = :account_id;

-- name: erase_predictions | Delete an account's predictions.
DELETE FROM prediction WHERE account_id = :account_id;

-- name: erase_statements | Delete statements extracted from an account's pages.
DELETE FROM memory_statement WHERE account_id = :account_id;

-- name: erase_names | Delete the names by which an account's pages are recognized.
DELETE FROM memory_name WHERE account_id = :account_id;

-- name: erase_vectors | Delete the embedding vectors of an account's pages.
DELETE FROM memory_vector WHERE account_id = :account_id;

-- name: erase_index | Delete the search index entries of an account's pages.
DELETE FROM memory_index WHERE account_id = :account_id;

-- name: erase_changes | Delete the change counter of an account's memory.
DELETE FROM memory_change WHERE account_id = :account_id;

-- name: erase_memory_batch_pages | Delete the page versions of an account's memory batches.
DELETE FROM memory_batch_page WHERE batch_id IN (SELECT id FROM memory_batch WHERE account_id = :account_id);

-- name: erase_memory_batches | Delete an account's memory batches.
DELETE FROM memory_batch WHERE account_id = :account_id;

-- name: erase_timelines | Delete the timeline entries of an account's pages.
DELETE FROM timeline_entry WHERE page_id IN (SELECT id FROM page WHERE account_id = :account_id);

-- name: erase_links | Delete the links of an account's pages.
DELETE FROM page_link WHERE page_id IN (SELECT id FROM page WHERE account_id = :account_id);

-- name: erase_collections | Delete the collection memberships of an account's pages.
DELETE FROM page_collection WHERE account_id = :account_id;

-- name: erase_tags | Delete the tags of an account's pages.
DELETE FROM page_tag WHERE account_id = :account_id;

-- name: erase_redirects | Delete the redirects from former slugs of an account's pages.
DELETE FROM page_redirect WHERE account_id = :account_id;

-- name: erase_page_files | Forget the files of an account's pages.
DELETE FROM page_file WHERE account_id = :account_id;

-- name: erase_versions | Delete all versions of an account's pages.
DELETE FROM page_version WHERE account_id = :account_id;

-- name: erase_pages | Delete an account's pages.
DELETE FROM page WHERE account_id = :account_id;

-- name: erase_folders | Delete the folders of an account's memory.
DELETE FROM memory_folder WHERE account_id = :account_id;

-- name: erase_usage | Delete the usage counters of an account's memory.
DELETE FROM memory_usage WHERE account_id = :account_id;

-- name: erase_spent_tokens | Delete the used refresh tokens of an account's OAuth grants.
DELETE FROM oauth_spent WHERE grant_id IN (SELECT id FROM oauth_grant WHERE account_id = :account_id);

-- name: erase_grants | Delete an account's OAuth grants.
DELETE FROM oauth_grant WHERE account_id = :account_id;

-- name: erase_spending | Delete the spending counters of an account and of its keys, members and teams.
DELETE FROM key_spend WHERE key_id IN (
    SELECT id FROM api_key WHERE account_id = :account_id UNION ALL SELECT id FROM team WHERE account_id = :account_id
    UNION ALL SELECT id FROM member WHERE account_id = :account_id UNION ALL SELECT id FROM account WHERE id = :account_id);

-- name: erase_rates | Delete the rate limit counters of an account's keys.
DELETE FROM key_rate WHERE key_id IN (SELECT id FROM api_key WHERE account_id = :account_id);

-- name: erase_invitations | Delete an account's invitations.
DELETE FROM invitation WHERE account_id = :account_id;

-- name: erase_members | Delete an account's members, and the memberships of its person.
DELETE FROM member WHERE account_id = :account_id OR person_id = :account_id;

-- name: erase_former_members | Delete an account's former members, and those that its person was.
DELETE FROM former_member WHERE account_id = :account_id OR person_id = :account_id;

-- name: erase_teams | Delete an account's teams.
DELETE FROM team WHERE account_id = :account_id;

-- name: erase_keys | Delete an account's keys.
DELETE FROM api_key WHERE account_id = :account_id;

-- name: erase_passkeys | Delete an account's passkeys.
DELETE FROM passkey WHERE account_id = :account_id;

-- name: erase_identities | Delete an account's OpenID identities.
DELETE FROM identity WHERE account_id = :account_id;

-- name: erase_signins | Delete an account's login sessions and links, and the sessions that act for it.
DELETE FROM signin WHERE account_id = :account_id OR organization_id = :account_id;

-- name: erase_audit | Delete an account's audit log.
DELETE FROM audit WHERE account_id = :account_id;

-- name: erase_media | Mark all media files of an account as expired, so that the sweep deletes them and their bytes.
UPDATE media SET expires_at = :now, prediction_id = NULL, upload_id = NULL WHERE account_id = :account_id;

-- name: erase_descriptions | Clear the descriptions and references of an account's ledger transfers; kind and amount remain.
UPDATE transfer SET description = kind, request_id = NULL, charge = NULL
WHERE debit = :account_id OR credit = :account_id;

-- name: erase_account | Clear an account's personal data; its id and balances remain.
UPDATE account SET email = NULL, password_hash = NULL, webhook_secret = NULL, webhook_sealed = NULL,
                   subscription = NULL, plan = 'free', closing_at = NULL, closed_by_operator = 0, budget_day = NULL, budget_month = NULL,
                   operator_day = NULL, operator_month = NULL,
                   public_name = NULL, link_requested_at = NULL, credit_requested_at = NULL,
                   invitation_credit = NULL, invitation_reason = NULL
WHERE id = :account_id;
