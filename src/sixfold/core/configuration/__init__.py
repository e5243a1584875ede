"""The part of the configuration that operators change on pages or over HTTP."""
