"""Background jobs, which are claimed from the database and run in a process of their own."""
