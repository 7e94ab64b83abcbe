"""Tuning tables in each runtime's own format, and the proof of what that runtime then runs."""
