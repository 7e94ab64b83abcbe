"""Selection of the fastest algorithm for every call from measurements and simulated times."""
