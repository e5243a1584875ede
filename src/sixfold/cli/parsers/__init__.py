"""The argument parsers of groups of commands, which import no command, so that help is printed at once."""
