"""The archive: expired records and closed periods of the ledger, in files that form a hash chain."""
