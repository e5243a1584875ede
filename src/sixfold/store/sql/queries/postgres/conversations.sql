-- name: conversation_items_known | Return which of these ids the items of a conversation have.
SELECT id FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id
  AND id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));

-- name: objects_owned | Return which of these objects of model servers belong to an account.
SELECT id, server, response_id FROM relay_object
WHERE account_id = :account_id AND (:credential_id = '' OR credential_id = :credential_id)
  AND id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)));
