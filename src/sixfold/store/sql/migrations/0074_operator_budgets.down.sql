-- The previous version knows one budget per period: the lower one remains.
UPDATE account SET budget_day = operator_day WHERE operator_day < budget_day OR budget_day IS NULL;
UPDATE account SET budget_month = operator_month WHERE operator_month < budget_month OR budget_month IS NULL;
ALTER TABLE account DROP COLUMN operator_month;
ALTER TABLE account DROP COLUMN operator_day;
