ALTER TABLE api_key DROP COLUMN budget_id;
