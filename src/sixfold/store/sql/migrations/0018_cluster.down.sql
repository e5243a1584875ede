DROP TABLE session_standing;
DROP TABLE key_rate;
