"""The service: everything the database holds over HTTP, and what is published, fast."""
