"""Actions of operators on accounts, with a record of each."""
