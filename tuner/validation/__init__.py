"""Start the real library under a file, and see what it runs and what that gains."""
