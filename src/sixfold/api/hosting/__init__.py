"""Area E, container hosting: predictions that are run, followed and canceled; coded errors."""
