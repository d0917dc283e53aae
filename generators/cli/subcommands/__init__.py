"""Commands beside those that patch: every module here is one, and its file name is its name."""
