DROP TABLE session;
