-- Adds the budgets of an account that only the operator changes, besides those that its owner and admins set.
-- Budgets of accounts for which the operator has set one become budgets of the operator.
ALTER TABLE account ADD COLUMN operator_day INTEGER;
ALTER TABLE account ADD COLUMN operator_month INTEGER;
UPDATE account SET operator_day = budget_day, operator_month = budget_month, budget_day = NULL, budget_month = NULL
WHERE (budget_day IS NOT NULL OR budget_month IS NOT NULL)
  AND EXISTS (SELECT 1 FROM operator_action o WHERE o.target = account.id AND o.action = 'account.budgets');
