-- name: history_delete_messages | Delete the webhook deliveries about predictions of `ids` (a JSON array) and their parts at any depth.
{below :ids}
DELETE FROM webhook_outbox WHERE prediction_id = ANY (ARRAY(SELECT id COLLATE "default" FROM below));

-- name: history_delete_prompts | Forget that predictions of `ids` (a JSON array) and their parts were removed from the workflow history.
{below :ids}
DELETE FROM graph_forgotten f USING prediction p
WHERE p.id = ANY (ARRAY(SELECT id FROM below)) AND f.account_id = p.account_id AND f.prediction_id = p.id;

-- name: history_delete_shares | End the shares of predictions of `ids` (a JSON array) and their parts.
{below :ids}
DELETE FROM share s USING prediction p
WHERE p.id = ANY (ARRAY(SELECT id FROM below)) AND s.account_id = p.account_id AND s.kind = 'run' AND s.object_id = p.id;
