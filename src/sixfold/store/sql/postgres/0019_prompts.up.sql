-- Adds prompts that clients removed from their history.
CREATE TABLE graph_forgotten (
    account_id    TEXT NOT NULL REFERENCES account (id),
    prediction_id TEXT NOT NULL,
    PRIMARY KEY (account_id, prediction_id)
);
