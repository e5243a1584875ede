DROP TABLE relay_once;
