-- Adds the calls whose response a guardrail of the caller receives, so that they are not refunded.
ALTER TABLE relay_call ADD COLUMN shared INTEGER NOT NULL DEFAULT 0;
