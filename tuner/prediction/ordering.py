"""The order of predictions by their times."""

SIGNIFICANT_DIGITS = 12  # further ones are rounding


def rounded_seconds(seconds: float) -> float:
    """Round a time, so that of equally fast candidates the first in their order is the fastest."""
    return float(f"{seconds:.{SIGNIFICANT_DIGITS}g}")
