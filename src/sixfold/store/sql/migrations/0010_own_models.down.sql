DROP TABLE own_model;
