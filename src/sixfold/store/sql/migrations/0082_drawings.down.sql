DROP TABLE share_card;
DROP TABLE run_drawing;
ALTER TABLE media DROP COLUMN file_name;
