"""The gateway: selection of model servers for calls, forwarding, prices, holds and charges."""
