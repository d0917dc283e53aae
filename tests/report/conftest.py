"""Reports of patches on the miniature targets of the command line."""

from tests.cli.conftest import checkout, skillgen, tree

__all__ = ["checkout", "skillgen", "tree"]
