"""Area B: one key for every model, in the dialects that clients speak."""
