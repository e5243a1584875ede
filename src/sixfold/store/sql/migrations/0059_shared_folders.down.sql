DROP TABLE shared_folder;
