"""One module per technique; its file name is its name."""
