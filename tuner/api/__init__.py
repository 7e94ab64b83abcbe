"""The HTTP service for the contents of the database, with a fast path for published tables."""
