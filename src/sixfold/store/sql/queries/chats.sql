-- name: chat_insert | Insert an empty chat.
INSERT INTO relay_conversation
    (account_id, id, credential_id, metadata, items, size, last_place, title, model, created_at, changed_at)
VALUES (:account_id, :id, :credential_id, '{}', 0, 0, 0, :title, :model, :now, :now);

-- name: chat_get | Return a chat, and whether an answer to it is being made.
SELECT id, title, model, root, parent, shared, draft, cost, items, size, last_place, created_at, changed_at,
       CASE WHEN lock_id = '' OR locked_at < :now - :life
                 OR (lock_holder <> :holder AND NOT server_lives(lock_holder)) THEN 0 ELSE 1 END AS busy
FROM relay_conversation WHERE account_id = :account_id AND id = :id AND title <> ''
  AND (:credential_id = '' OR credential_id = :credential_id);

-- name: chat_list | Return an account's chats before a time, the last changed first, each by its last changed version.
SELECT id, root, title, model, changed_at FROM relay_conversation c
WHERE account_id = :account_id AND title <> '' AND (:credential_id = '' OR credential_id = :credential_id)
  AND changed_at < :before
  AND NOT EXISTS (
    SELECT 1 FROM relay_conversation n
    WHERE n.account_id = c.account_id AND n.root <> ''
      AND n.root = CASE WHEN c.root = '' THEN c.id ELSE c.root END
      AND (:credential_id = '' OR n.credential_id = :credential_id)
      AND (n.changed_at > c.changed_at OR (n.changed_at = c.changed_at AND n.id > c.id)))
  AND NOT EXISTS (
    SELECT 1 FROM relay_conversation n
    WHERE n.account_id = c.account_id AND n.id = c.root
      AND (:credential_id = '' OR n.credential_id = :credential_id)
      AND (n.changed_at > c.changed_at OR (n.changed_at = c.changed_at AND n.id > c.id)))
ORDER BY changed_at DESC, id DESC LIMIT :limit;

-- name: chat_items | Return the last items of a chat up to a total size, newest first; large ones without content.
SELECT i.place, i.id, i.detail, i.size, last_items.found,
    CASE WHEN i.size > :item_bytes THEN '' ELSE i.item END AS item
FROM relay_conversation_item i
JOIN (SELECT place, COUNT(*) OVER () AS found,
          SUM(CASE WHEN size > :item_bytes THEN 0 ELSE size END) OVER (ORDER BY place DESC) AS total
      FROM (SELECT place, size FROM relay_conversation_item
            WHERE account_id = :account_id AND conversation_id = :id AND place < :before
            ORDER BY place DESC LIMIT :limit) AS newest) AS last_items ON last_items.place = i.place
WHERE i.account_id = :account_id AND i.conversation_id = :id AND last_items.total <= :most_bytes
ORDER BY i.place DESC;

-- name: chat_item | Return an item of a chat, without content if it is larger than a size.
SELECT place, id, detail, size, CASE WHEN size > :item_bytes THEN '' ELSE item END AS item FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :id AND id = :item_id;

-- name: chat_item_detail | Set what the page shows of an item.
UPDATE relay_conversation_item SET detail = :detail
WHERE account_id = :account_id AND conversation_id = :id AND place = :place;

-- name: chat_begin | Note that an answer to a chat is being made.
UPDATE relay_conversation SET model = :model, draft = :draft, stopping = 0, changed_at = :now
WHERE account_id = :account_id AND id = :id;

-- name: chat_checkpoint | Store the answer so far; return whether it is to stop, or no row if the chat was deleted.
UPDATE relay_conversation SET draft = :draft WHERE account_id = :account_id AND id = :id AND lock_id = :lock_id
RETURNING stopping;

-- name: chat_stop | Ask the process that makes the answer to stop.
UPDATE relay_conversation SET stopping = 1 WHERE account_id = :account_id AND id = :id AND lock_id <> '';

-- name: chat_end | Note that the answer has ended, with what is left of a failed one.
UPDATE relay_conversation SET draft = :draft, stopping = 0, cost = cost + :cost, changed_at = :now
WHERE account_id = :account_id AND id = :id;

-- name: chat_rename | Set the title of a chat and its versions.
UPDATE relay_conversation SET title = :title WHERE account_id = :account_id AND id {version_of :root};

-- name: chat_delete | Delete a chat with its versions.
DELETE FROM relay_conversation WHERE account_id = :account_id AND id {version_of :root};

-- name: chat_versions | Return the versions of a chat, oldest first.
SELECT id, parent, shared, cost FROM relay_conversation
WHERE account_id = :account_id AND id {version_of :root} ORDER BY created_at, id LIMIT :limit;

-- name: chat_copy | Insert an empty copy of a chat.
INSERT INTO relay_conversation
    (account_id, id, credential_id, metadata, items, size, last_place, title, model, root, parent, shared,
     created_at, changed_at)
SELECT account_id, :copy_id, :credential_id, metadata, 0, 0, 0, :title, model, :root, :parent, :last, :now, :now
FROM relay_conversation WHERE account_id = :account_id AND id = :id;

-- name: chat_copy_items | Copy the items of a chat up to a place.
INSERT INTO relay_conversation_item (account_id, conversation_id, place, id, size, item, detail)
SELECT account_id, :copy_id, place, id, size, item, detail FROM relay_conversation_item
WHERE account_id = :account_id AND conversation_id = :id AND place <= :last;

-- name: chat_count_items | Set the number, the size and the last place of a copy's items.
UPDATE relay_conversation SET last_place = :last,
    items = (SELECT COUNT(*) FROM relay_conversation_item i
             WHERE i.account_id = :account_id AND i.conversation_id = :copy_id),
    size = (SELECT COALESCE(SUM(i.size), 0) FROM relay_conversation_item i
            WHERE i.account_id = :account_id AND i.conversation_id = :copy_id)
WHERE account_id = :account_id AND id = :copy_id;
