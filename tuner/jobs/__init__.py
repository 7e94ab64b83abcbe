"""Long work: claimed from the database, carried out in a process of its own, exactly once."""
