"""Measurements become the figures that the simulator calculates with."""

from tuner.calibrate.build import CalibrationFit, calibrate, fit_calibration

__all__ = ["CalibrationFit", "calibrate", "fit_calibration"]
