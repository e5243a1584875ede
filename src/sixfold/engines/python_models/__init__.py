"""The operator's own models: typed Python functions in files of the data folder."""
