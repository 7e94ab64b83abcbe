"""The command line: `main` runs one of the commands."""
