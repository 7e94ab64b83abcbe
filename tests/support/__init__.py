"""What several tests share: oracles, operators, random machines."""
