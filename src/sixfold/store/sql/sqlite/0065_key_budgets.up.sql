-- Adds the key whose budgets and rates a rolled key counts against; NULL is the key itself.
ALTER TABLE api_key ADD COLUMN budget_id TEXT;
