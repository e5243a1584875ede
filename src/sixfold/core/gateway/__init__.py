"""The gateway: routes, prices, holds and forwards calls to model servers, and charges for them."""
