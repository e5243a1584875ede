"""Models of the operator's own: typed Python functions in files of the data folder."""
