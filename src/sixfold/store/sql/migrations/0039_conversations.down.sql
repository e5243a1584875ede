ALTER TABLE relay_response DROP COLUMN place;
ALTER TABLE relay_response DROP COLUMN conversation;
DROP TABLE relay_object;
DROP TABLE relay_conversation_item;
DROP TABLE relay_conversation;
