"""Options that several verbs share, and what texts of the command line mean."""
