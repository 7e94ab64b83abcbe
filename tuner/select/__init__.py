"""From measurements and simulated times to the fastest choice of every call."""
