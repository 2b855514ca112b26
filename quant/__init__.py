"""Quantization and calibration of trained models, with a verdict that can be trusted."""
