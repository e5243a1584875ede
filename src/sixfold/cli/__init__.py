"""The command line: one module or package per command or group of commands, imported when it is used."""
