"""The command line: one file per group of commands, imported when one of them is asked for."""
