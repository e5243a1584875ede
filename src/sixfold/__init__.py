"""Sixfold: six AI media interfaces, one account, one ledger, one server."""

__version__ = "0.1.0"
