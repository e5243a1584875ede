"""Python models of the operator: typed functions in files of the data folder."""
