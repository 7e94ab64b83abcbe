"""Validation of tuning files in the real library: what it then runs, and what that gains."""
