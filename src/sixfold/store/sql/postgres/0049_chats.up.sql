-- Adds titles and versions of chats.
-- Conversations of the chat page have a title. A version of another one, `parent`, has its items up to the place
-- `shared` and belongs to the family of `root`. `draft` is the answer that is being made or that failed, as JSON;
-- `stopping` asks the server process that makes it to stop. `cost` is what the answers were charged, in micro-dollars.
-- `detail` of an item is what the page shows of it beside its text, as JSON.
ALTER TABLE relay_conversation ADD COLUMN title TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE relay_conversation ADD COLUMN model TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE relay_conversation ADD COLUMN root TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE relay_conversation ADD COLUMN parent TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE relay_conversation ADD COLUMN shared BIGINT NOT NULL DEFAULT 0;
ALTER TABLE relay_conversation ADD COLUMN draft TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE relay_conversation ADD COLUMN stopping BIGINT NOT NULL DEFAULT 0;
ALTER TABLE relay_conversation ADD COLUMN cost BIGINT NOT NULL DEFAULT 0;
ALTER TABLE relay_conversation ADD COLUMN changed_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE relay_conversation_item ADD COLUMN detail TEXT COLLATE "C" NOT NULL DEFAULT '{}';
CREATE INDEX relay_conversation_chats ON relay_conversation (account_id, changed_at) WHERE title <> '';
CREATE INDEX relay_conversation_versions ON relay_conversation (account_id, root) WHERE root <> '';
