"""Everything that leaves this server for an address a request has named."""
