"""A landscape to walk through, drawn column by column."""
