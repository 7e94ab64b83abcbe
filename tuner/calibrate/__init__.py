"""Fit the parameters of the simulator to measurements."""

from tuner.calibrate.build import CalibrationFit, calibrate, fit_calibration

__all__ = ["CalibrationFit", "calibrate", "fit_calibration"]
