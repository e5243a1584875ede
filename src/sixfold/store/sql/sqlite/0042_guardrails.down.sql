DROP TABLE guardrail;
