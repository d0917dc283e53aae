"""Writing to a target: all or nothing, with a receipt, and back again to the byte."""

from skillgen.ledger.actions import FileState, PatchState, commit, revert, status, without
from skillgen.ledger.journal import recover
from skillgen.ledger.receipts import Receipt

__all__ = ["FileState", "PatchState", "Receipt", "commit", "recover", "revert", "status", "without"]
