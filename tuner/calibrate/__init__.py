"""Fit the parameters of the simulator to measurements."""

from tuner.calibrate.build import CalibrationFit, calibrate, empty_calibration, fit_calibration

__all__ = ["CalibrationFit", "calibrate", "empty_calibration", "fit_calibration"]
