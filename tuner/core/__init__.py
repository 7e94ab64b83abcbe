"""The vocabulary of the domain: collectives, schedules, tables, measurements, calibrations."""
