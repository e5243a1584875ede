DROP INDEX batch_response;
ALTER TABLE batch DROP COLUMN response_id;
