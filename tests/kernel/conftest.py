"""Kernel tests read miniature targets."""

from tests.miniature import tree

__all__ = ["tree"]
