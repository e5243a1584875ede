DROP INDEX page_folder;
DROP TABLE memory_folder;
