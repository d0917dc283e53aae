"""Options of the commands that may run as a Slurm job, and the YAML profile that a site keeps for them."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.launch import sbatch

if TYPE_CHECKING:
    from skillgen.launch.slurm import Slurm

NUMBERS = {"nodes": 1, "gpus_per_node": 0, "ntasks_per_node": 1, "cpus_per_task": 1}  # and the least of each
TINIEST, LARGEST = 1e-9, 1e9  # of a ratio
SHORTEST, LONGEST = 1e-3, 1e8  # seconds, up to three years: what a clock and a time limit can still count
CONTROL = r"[\x00-\x1f]"  # more than a line, or no text
BARE = ("partition", "account", "qos", "time")  # written into an #SBATCH line as they are
# options by the name of their profile key; `nodes` is --nnodes, as for torchrun
OPTIONS = {
    "partition": ("NAME", "partition of the job"),
    "account": ("NAME", "account that is charged"),
    "qos": ("NAME", "quality of service"),
    "time": ("TIME", "time limit of the job, as sbatch takes it (default: follows from --timeout)"),
    "gpus_per_node": ("N", "GPUs to ask for on each node (default: --nproc with nccl)"),
    "ntasks_per_node": ("N", "tasks on each node, for a command that starts no ranks itself (default 1)"),
    "cpus_per_task": ("N", "CPUs for each task"),
    "container_image": ("IMAGE", "container for pyxis and enroot, with skillgen and what the ranks import"),
    "container_mounts": ("LIST", "mounts, as pyxis takes them; target and report are mounted in any case"),
}


def count(least: int) -> Callable[[str], int]:
    """The type of an option that is a whole number, `least` or more."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[-+]?\d{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return parse


def number(text: str, *, zero: bool = False) -> float:
    """The type of an option that is a ratio, or 0 where that has a sense."""
    return _within(text, TINIEST, LARGEST, zero=zero)


def seconds(text: str) -> float:
    """The type of an option that is a time."""
    return _within(text, SHORTEST, LONGEST, unit=" seconds")


def _within(text: str, least: float, most: float, *, zero: bool = False, unit: str = "") -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (least <= value <= most or (zero and value == 0)):
        told = f"{'0, or ' if zero else ''}from {least:g} to {most:g}{unit}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number {told}")
    return value


def add_options(parser: argparse.ArgumentParser, *, tasks: bool = False) -> None:
    """The options of a job; `tasks` where what it runs may be other than one torchrun on each node."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--launcher",
        choices=["torchrun", "slurm"],
        default="torchrun",
        help="here, under torchrun (default), or as a Slurm job: writes REPORT/slurm/job.sbatch, in a folder that all "
        "nodes see, and without --submit leaves it to you",
    )
    group.add_argument("--submit", action="store_true", help="submit the job, wait for it, and end like a local run")
    group.add_argument("--job", metavar="ID", help="wait for the job of this folder that was submitted by hand")
    group.add_argument("--profile", metavar="FILE", help="YAML with the options of this group; options beat it")
    for key, (metavar, help) in OPTIONS.items():
        if key == "ntasks_per_node" and not tasks:
            continue
        kind = count(NUMBERS[key]) if key in NUMBERS else str
        group.add_argument(f"--{key.replace('_', '-')}", type=kind, metavar=metavar, help=help)
    group.add_argument("--env", action="append", metavar="NAME=VALUE", help="export in the job (repeatable)")
    group.add_argument("--sbatch", action="append", metavar="OPTION", help="e.g. --sbatch=--exclusive (repeatable)")
    group.add_argument("--queue-limit", type=seconds, default=3600, metavar="S", help="cancel a job that waits (3600)")
    group.add_argument("--poll", type=seconds, default=10, metavar="S", help="ask Slurm every S seconds (10)")


def slurm(args: argparse.Namespace, nodes: int | None, **defaults: Any) -> Slurm | None:
    """What was asked for, None for a run here: options before the profile, the profile before `defaults`."""
    given = {key: getattr(args, key, None) for key in OPTIONS} | {"nodes": nodes}
    given |= {"env": _pairs(args.env) if args.env else None, "sbatch": args.sbatch}
    given = {key: value for key, value in given.items() if value is not None}
    if args.launcher != "slurm":
        asked = [f"--{key.replace('_', '-')}" for key in given if key != "nodes"]
        asked += [f"--{key}" for key in ("submit", "job", "profile") if getattr(args, key)]
        if asked:
            message = f"{', '.join(asked)} without --launcher slurm: a run on this machine has no use for it"
            raise SkillgenError("no-cluster", message, exit_code=USAGE)
        return None
    if not args.report:
        hint = "--report DIR, where all nodes see it"
        raise SkillgenError(
            "no-shared-folder", "a Slurm job writes into the report's folder", hint=hint, exit_code=USAGE
        )
    if args.submit and args.job:
        raise SkillgenError("usage", "--submit and --job: the job is submitted already", exit_code=USAGE)
    if args.job and not args.job.isdecimal():
        raise SkillgenError("usage", f"--job {args.job}: it is the number that sbatch gave", exit_code=USAGE)
    if re.search(CONTROL, args.report):
        raise SkillgenError("bad-setting", f"report: {args.report!r} is more than a line", exit_code=USAGE)
    from skillgen.launch.slurm import Settings, Slurm

    profile = read_profile(Path(args.profile)) if args.profile else {}
    env = profile.get("env", {}) | (given.get("env") or {})
    values = {**defaults, **profile, **given, "env": env}
    for key, value in values.items():
        _plain(key, value)
    return Slurm(settings=Settings(**values), job=args.job, queue_limit=args.queue_limit, poll=args.poll)


def read_profile(path: Path) -> dict[str, Any]:
    """The settings in a YAML file; every scalar is text there, so that `time: 00:30:00` stays what it says."""
    from dataclasses import fields

    import yaml

    from skillgen.launch.slurm import Settings

    try:
        text = path.read_text(encoding="utf-8")
        found, node = yaml.load(text, Loader=yaml.BaseLoader), yaml.compose(text, Loader=yaml.BaseLoader)
    except UnicodeDecodeError as error:
        raise _wrong(f"not UTF-8: {error}", path) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise _wrong(f"no YAML: {error}", path) from error
    if not isinstance(found, dict):
        raise _wrong("a profile maps settings to values", path)
    known = [each.name for each in fields(Settings)]
    if unknown := [str(key) for key in found if key not in known]:
        message = f"no such setting: {', '.join(unknown)}"
        raise SkillgenError(
            "unknown-setting", message, where=str(path), hint=f"one of: {', '.join(known)}", exit_code=USAGE
        )
    if fault := _fault(node):
        raise _wrong(fault, path)
    for key, value in found.items():
        shape = {"env": dict, "sbatch": list}.get(key, str)
        if not isinstance(value, shape):
            raise _wrong(
                f"{key} is a {'mapping' if shape is dict else 'list' if shape is list else 'single value'}", path
            )
        if key in NUMBERS:
            if not value.isdecimal():
                raise _wrong(f"{key} is a number, not {value!r}", path)
            try:
                found[key] = count(NUMBERS[key])(value)
            except argparse.ArgumentTypeError as error:
                raise _wrong(f"{key}: {error}", path) from None
    return found


def _fault(node: Any, inside: str = "") -> str:
    """What a mapping, or one of its settings, has twice or without a value; an empty text is written as such."""
    seen = set()
    for name, value in node.value:
        if name.value in seen:
            return f"{inside}{name.value} is there twice"
        seen.add(name.value)
        if _is_null(value):
            return f"{inside}{name.value} has no value"
        if value.id == "sequence" and any(map(_is_null, value.value)):
            return f"{inside}{name.value}: an entry has no value"
        if value.id == "mapping" and not inside and (fault := _fault(value, f"{name.value}: ")):
            return fault
    return ""


def _is_null(node: Any) -> bool:
    return node.id == "scalar" and node.style is None and node.value in ("", "~", "null", "Null", "NULL")


def _wrong(message: str, path: Path) -> SkillgenError:
    return SkillgenError("bad-profile", message, where=str(path), exit_code=USAGE)


def _pairs(words: list[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise SkillgenError("bad-setting", f"--env {word}: it is NAME=VALUE", exit_code=USAGE)
        pairs[name] = value
    return pairs


def _plain(key: str, value: Any) -> None:
    """Refuse what would be more than one line, or no name, in a batch script."""
    texts = (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [str(value)]
    )
    bad = [text for text in texts if not isinstance(text, str) or re.search(CONTROL, text)]
    place = "a batch script"
    if key == "env":
        bad += [name for name in value if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    elif "" in texts:
        raise SkillgenError("bad-setting", f"{key} is empty", exit_code=USAGE)
    elif key in BARE and not bad:
        place = "an #SBATCH line"
        bad = [text for text in texts if re.search(r"""[\s'"\\#]""", text)]
    elif key == "sbatch" and not bad:
        for text in texts:
            sbatch.refuse(text)
    if bad:
        raise SkillgenError("bad-setting", f"{key}: {bad[0]!r} cannot stand in {place}", exit_code=USAGE)
