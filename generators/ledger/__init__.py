"""Writing to a target: all or nothing, with a receipt, and back again to the byte."""

from skillgen.ledger.actions import FileState, Patch, PatchState, commit, commit_all, revert, stage, status, without
from skillgen.ledger.journal import recover
from skillgen.ledger.receipts import Receipt
from skillgen.ledger.workspace import Workspace

__all__ = [
    "FileState",
    "Patch",
    "PatchState",
    "Receipt",
    "Workspace",
    "commit",
    "commit_all",
    "recover",
    "revert",
    "stage",
    "status",
    "without",
]
