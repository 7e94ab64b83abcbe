"""Tuning tables in the native file formats of the libraries."""
