-- name: conversation_usage | Return the number and total size of an account's conversations.
SELECT COUNT(*) AS conversations, COALESCE(SUM(size), 0) AS size FROM relay_conversation WHERE account_id = :account_id;

-- name: conversation_insert | Insert an empty conversation.
INSERT INTO relay_conversation (account_id, id, credential_id, metadata, items, size, last_place, created_at)
VALUES (:account_id, :id, :credential_id, :metadata, 0, 0, 0, :now);

-- name: conversation_get | Return a conversation.
SELECT id, metadata, items, size, last_place, created_at
FROM relay_conversation WHERE account_id = :account_id AND id = :id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: conversation_size | Return the size of a conversation.
SELECT size FROM relay_conversation WHERE account_id = :account_id AND id = :id
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: conversation_lock | Lock a conversation for a response; return no row if another response has locked it.
UPDATE relay_conversation SET lock_id = :lock_id, lock_holder = :holder, locked_at = :now
WHERE account_id = :account_id AND id = :id
  AND (lock_id = '' OR locked_at < :now - :life OR (lock_holder <> :holder AND NOT server_lives(lock_holder)))
RETURNING id;

-- name: conversation_unlock | Unlock a conversation if this response has locked it.
UPDATE relay_conversation SET lock_id = '', lock_holder = '' WHERE account_id = :account_id AND id = :id
  AND lock_id = :lock_id RETURNING id;

-- name: conversation_describe | Replace the metadata of a conversation.
UPDATE relay_conversation SET metadata = :metadata WHERE account_id = :account_id AND id = :id;

-- name: conversation_delete | Delete a conversation with its items.
DELETE FROM relay_conversation WHERE account_id = :account_id AND id = :id;

-- name: conversation_grow | Add to the number and size of a conversation's items; return the place of the last one.
UPDATE relay_conversation SET items = items + :items, size = size + :size, last_place = last_place + :items
WHERE account_id = :account_id AND id = :id RETURNING last_place;

-- name: conversation_shrink | Take a deleted item from the number and size of a conversation's items.
UPDATE relay_conversation SET items = items + :items, size = size + :size
WHERE account_id = :account_id AND id = :id;

-- name: conversation_item_insert | Insert an item of a conversation.
INSERT INTO relay_conversation_item (account_id, conversation_id, place, id, size, item)
VALUES (:account_id, :conversation_id, :place, :id, :size, :item);

-- name: conversation_items_known | Return which of these ids the items of a conversation have.
SELECT id FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id
  AND id {in :ids};

-- name: conversation_item_place | Return the place and size of an item of a conversation.
SELECT place, size FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id AND id = :id;

-- name: conversation_item_delete | Delete an item of a conversation.
DELETE FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id AND id = :id RETURNING size;

-- name: conversation_items | Return the items of a conversation up to a place, oldest first.
SELECT id, item FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id AND place <= :last ORDER BY place;

-- name: conversation_places_up | Return the places and sizes of the items after a place, oldest first.
SELECT place, size FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id AND place > :after
ORDER BY place LIMIT :limit;

-- name: conversation_places_down | Return the places and sizes of the items before a place, newest first.
SELECT place, size FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id AND place < :after
ORDER BY place DESC LIMIT :limit;

-- name: conversation_items_between | Return the items of a conversation between two places, oldest first.
SELECT id, item FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :conversation_id AND place BETWEEN :first AND :last ORDER BY place;

-- name: object_insert | Record an object of a model server as this account's; a repeated id belongs to its last response.
INSERT INTO relay_object (account_id, id, credential_id, server, response_id, created_at)
VALUES (:account_id, :id, :credential_id, :server, :response_id, :now)
ON CONFLICT (account_id, id, credential_id) DO UPDATE SET server = excluded.server, response_id = excluded.response_id,
    created_at = excluded.created_at;

-- name: objects_owned | Return which of these objects of model servers belong to an account.
SELECT id, server, response_id FROM relay_object
WHERE account_id = :account_id AND (:credential_id = '' OR credential_id = :credential_id)
  AND id {in :ids};

-- name: objects_forget | Forget the objects of a deleted response.
DELETE FROM relay_object WHERE account_id = :account_id AND response_id = :response_id;

-- name: objects_sweep | Forget expired objects.
DELETE FROM relay_object WHERE created_at < :now - :life;
