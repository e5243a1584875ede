"""Clients of model servers, providers and containers. The client for users of Sixfold is `sixfold.client`."""
