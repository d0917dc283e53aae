"""What the suites know of NeMo Automodel."""
