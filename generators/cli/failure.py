"""What ended a command, in the words that a user sees."""

from __future__ import annotations

from skillgen.kernel.errors import INTERRUPTED, IO, SkillgenError

INTERNAL = 70  # a defect of skillgen itself
MOST = 400  # characters of an exception's text that people see: that of a syntax tree has 40,000 lines


def failure(error: BaseException) -> SkillgenError:
    """What ended a command, as the failure that a user sees."""
    if _interrupted(error):
        return SkillgenError("interrupted", "interrupted", exit_code=INTERRUPTED)
    if isinstance(error, OSError):
        from skillgen.ledger.disk import advice

        where, hint = str(error.filename or ""), advice(error)
        return SkillgenError("io", error.strerror or str(error), where=where, hint=hint, exit_code=IO)
    hint = "a defect of skillgen: run again with SKILLGEN_DEBUG=1 and report the traceback"
    return SkillgenError("internal", capped(f"{type(error).__name__}: {error}"), hint=hint, exit_code=INTERNAL)


def _interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C began it: a context manager that it leaves may raise an error of its own, as libcst's do."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, KeyboardInterrupt):
            return True
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            waiting += [one.__cause__, one.__context__]
    return False


def capped(text: str, most: int = MOST) -> str:
    """A text that is not longer than people read."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text) - most} more characters)"
