"""Measurements become the figures that the simulator calculates with."""

from tuner.calibrate.build import Fit, calibrate, fit

__all__ = ["Fit", "calibrate", "fit"]
