"""One module per family of NeMo Automodel."""
