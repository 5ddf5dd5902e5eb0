"""From scores to label sets: calibration, thresholds and decisions."""
