"""Training workloads: from models and their collective calls to samples per second."""
