"""Options that a job's #SBATCH lines cannot be given: they would override what its script relies on."""

from __future__ import annotations

import shlex

from skillgen.kernel.errors import USAGE, SkillgenError

LOG = "the job's log is slurm/slurm.log in the report's folder, which is read when it fails"
TASKS = "one task on each node starts the ranks; `skillgen ab` has --ntasks-per-node"
GPUS = "use --gpus-per-node"
HERE = "the job is looked for on this cluster"
NOTHING = "it submits nothing"
# by their long names: the short one, and what to do instead or why not
TAKEN = {
    "nodes": ("N", "use --nnodes"),
    "ntasks": ("n", TASKS),
    "ntasks-per-node": ("", TASKS),
    "ntasks-per-gpu": ("", TASKS),
    "ntasks-per-socket": ("", TASKS),
    "tasks-per-node": ("", TASKS),
    "cpus-per-task": ("c", "use --cpus-per-task"),
    "gpus": ("G", GPUS),
    "gpus-per-node": ("", GPUS),
    "gpus-per-task": ("", GPUS),
    "partition": ("p", "use --partition"),
    "account": ("A", "use --account"),
    "qos": ("q", "use --qos"),
    "time": ("t", "use --time"),
    "output": ("o", LOG),
    "error": ("e", LOG),
    "open-mode": ("", LOG),
    "array": ("a", "one job writes into the report's folder"),
    "requeue": ("", "a job that was preempted is not started again over what it wrote"),
    "wrap": ("", "the job has a script"),
    "wait": ("W", "skillgen waits itself, and says what it waits for"),
    "export": ("", "the ranks get the whole environment of the script; use --env"),
    "export-file": ("", "use --env"),
    "clusters": ("M", HERE),
    "cluster": ("", HERE),
    "container": ("", "the script needs Slurm's own commands; use --container-image"),
    "container-image": ("", "use --container-image"),
    "container-mounts": ("", "use --container-mounts"),
    "test-only": ("", NOTHING),
    "help": ("h", NOTHING),
    "usage": ("u", NOTHING),
    "version": ("V", NOTHING),
}
SHORT = {short: name for name, (short, _) in TAKEN.items() if short}
SWITCHES = "HIOQv"  # short options without a value: another may follow in the same word


def refuse(text: str) -> None:
    """Look at what one line is to hold, which may be several options, in any spelling that sbatch takes."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SkillgenError("bad-setting", f"sbatch: {text!r}: {str(error).lower()}", exit_code=USAGE) from None
    if not words or words[0][:1] != "-" or {"-", "--"} & set(words):
        message = f"sbatch: {text!r} is no option: one begins with -, e.g. --exclusive"
        raise SkillgenError("bad-setting", message, exit_code=USAGE)
    for at, word in enumerate(words):
        name = _taken(word)
        value = word.partition("=")[2] or "".join(words[at + 1 : at + 2])
        if name and not (name == "export" and value.split(",")[0] == "ALL"):
            raise SkillgenError("bad-setting", f"sbatch: {word!r} is taken: {TAKEN[name][1]}", exit_code=USAGE)


def _taken(word: str) -> str:
    """The long name of what a word would override; a long option may be cut where it is still the only one."""
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return name if name in TAKEN else next((ours for ours in TAKEN if ours.startswith(name)), "")
    for letter in word[1:] if word.startswith("-") else "":
        if letter in SHORT:
            return SHORT[letter]
        if letter not in SWITCHES:
            break
    return ""
