"""The use cases that the command line, the service and its jobs share."""
