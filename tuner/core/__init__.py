"""The vocabulary of the domain: collectives, schedules, tables, measurements and calibrations."""
