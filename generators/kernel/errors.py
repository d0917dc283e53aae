"""Failures as values: every one has a code, a place, a hint and an exit code."""

from __future__ import annotations

OK, EVAL_FAILED, USAGE, REFUSED, DRIFT, CONFLICT, IO = range(7)
INTERRUPTED = 130  # as shells have it for Ctrl-C


class SkillgenError(Exception):
    """A failure that a user can act on."""

    def __init__(self, code: str, message: str, *, where: str = "", hint: str = "", exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint
        self.exit_code = exit_code

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "where": self.where, "hint": self.hint}


class AnchorDrift(SkillgenError):
    """An anchor is not where it was when the adapter was last verified."""

    def __init__(self, sought: str, *, where: str, verified: str = "", nearest: tuple[str, ...] = ()) -> None:
        near = "; nearest: " + ", ".join(nearest) if nearest else ""
        then = f"; last verified against {verified}" if verified else ""
        super().__init__(
            "anchor-moved",
            f"anchor not found: {sought}{then}{near}",
            where=where,
            hint="compare the place with the adapter's examples, then update the adapter or use a supported version",
            exit_code=DRIFT,
        )
        self.sought = sought
        self.verified = verified
        self.nearest = nearest
