"""Cost alerts: webhooks that are sent when spending reaches a threshold."""
