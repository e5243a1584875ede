"""HTTP plumbing shared by all APIs: routing, authentication, limits, logs and metrics."""
