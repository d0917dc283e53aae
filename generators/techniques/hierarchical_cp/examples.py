"""Examples that make their process groups by hand: both levels, where sizes are given."""

from __future__ import annotations

import ast
from pathlib import Path

from skillgen.kernel.model import (
    AddImport,
    AddParameter,
    Edit,
    InsertAfter,
    PassKeyword,
    ReplaceStatement,
    ReplaceText,
    ReplaceWords,
)
from skillgen.techniques.hierarchical_cp.sites import Site

MODULE = "megatron.bridge.training.utils.hierarchical_cp"
CREATED = 'dp_cp_pg = grid.create_pg(["dp", "cp"])'
BOTH_SIZES = """\
if args.cp_eval > 1 and (args.hcp_train is None) != (args.hcp_eval is None):
    raise ValueError("--hcp-train and --hcp-eval must be given together unless --cp-eval is 1")"""


def examples(place: Site) -> list[str]:
    """The examples that make a collection by hand and leave hcp empty, as paths from the root."""
    root = place.target.root
    found = (Path(path).relative_to(root).as_posix() for path in sorted((root / "examples").rglob("pretrain_*.py")))
    return [path for path in found if "hcp=None" in place.read(path)]


def edits_of(place: Site, path: str, consumer: str) -> list[Edit]:
    """Let an example that makes its groups by hand make both levels, where sizes are given."""
    text = place.read(path)
    tree = ast.parse(text)
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    functions = {node.name: ast.get_source_segment(text, node) or "" for node in nodes}
    maker = next(name for name, source in functions.items() if "hcp=None" in source)
    switched = maker == "create_pg_collection"  # one collection for training and one for evaluation
    setter = ("set_hierarchical_cp_groups",) if consumer == "bridge" else ()
    edits: list[Edit] = [
        AddImport(path=path, module=MODULE, names=("create_hierarchical_cp_groups", *setter)),
        AddParameter(path=path, function=maker, code="hcp_sizes: list[int] | None = None", after="cp_size"),
        InsertAfter(
            path=path, function=maker, anchor=CREATED, code="hcp_pgs = create_hierarchical_cp_groups(grid, hcp_sizes)"
        ),
        PassKeyword(
            path=path,
            function=maker,
            call="ProcessGroupCollection",
            code="hcp=hcp_pgs",
            after="tp_dp_cp",
            instead="hcp=None",
        ),
    ]
    described = "cp_size: Context parallel size." if switched else "cp_size: Context parallel size (default: 1)"
    more = "\nhcp_sizes: [all-to-all size, ring size] of hierarchical context parallelism, or None."
    edits.append(ReplaceWords(path=path, scope=maker, old=described, new=described + more))
    model = "model_cfg.sequence_parallel = args.tp_size > 1"
    after = model if model in text else "call:Qwen3ModelProvider4B"
    option = "hcp_train" if switched else "hcp_sizes"
    use = (
        f"if args.{option} is not None:\n"
        f'    model_cfg.cp_comm_type = "a2a+p2p"\n'
        f"    model_cfg.hierarchical_context_parallel_sizes = args.{option}"
    )
    where = next(name for name, source in functions.items() if after.removeprefix("call:") in source)
    edits.append(InsertAfter(path=path, function=where, anchor=after, code=use))
    install = "\nset_hierarchical_cp_groups({}.hcp)" if setter else ""
    return edits + (_switched if switched else _single)(path, install)


def _single(path: str, install: str) -> list[Edit]:
    size = 'parser.add_argument("--cp-size", type=int, default=1, help="Context parallel size (default: 1)")'
    call = "create_process_group_collection"
    edits: list[Edit] = [
        InsertAfter(path=path, function="parse_args", anchor=size, code=_argument("--hcp-sizes")),
        PassKeyword(path=path, function="main", call=call, code="hcp_sizes=args.hcp_sizes", after="cp_size"),
        ReplaceText(
            path=path,
            old="        # Hierarchical context parallel (not used)",
            new="        # Hierarchical context parallel (None without --hcp-sizes)",
        ),
    ]
    if install:
        code = install.format("pg_collection")
        edits.append(InsertAfter(path=path, function="main", anchor=f"call:{call}", code=code))
    return edits


def _switched(path: str, install: str) -> list[Edit]:
    """One collection for training, one for evaluation: attention is built with the first."""
    made = [
        f'{mode}_pgs = create_pg_collection(args.tp_size, args.pp_size, cp_size=args.cp_{mode}, label="{mode}_pgs")'
        for mode in ("train", "eval")
    ]
    size = 'parser.add_argument("--cp-train", type=int, default=1, help="Training CP degree")'
    return [
        InsertAfter(
            path=path,
            function="parse_args",
            anchor=size,
            code=f"{_argument('--hcp-train')}\n{_argument('--hcp-eval')}",
        ),
        ReplaceStatement(
            path=path,
            function="main",
            anchor="\n".join(made),
            code="\n".join([BOTH_SIZES, *(_sized(mode) for mode in ("train", "eval"))]) + install.format("train_pgs"),
        ),
        ReplaceText(path=path, old="  No FSDP, no CUDA graphs, no hierarchical CP", new="  No FSDP, no CUDA graphs"),
    ]


def _sized(mode: str) -> str:
    lines = ["args.tp_size,", "args.pp_size,", f"cp_size=args.cp_{mode},"]
    lines += [f"hcp_sizes=args.hcp_{mode},", f'label="{mode}_pgs",']
    return "\n".join([f"{mode}_pgs = create_pg_collection(", *(f"    {line}" for line in lines), ")"])


def _argument(option: str) -> str:
    when = {"--hcp-train": " in training", "--hcp-eval": " in evaluation"}.get(option, "")
    text = f'"{option}", type=int, nargs=2, help="All-to-all and ring size of a2a+p2p{when}"'
    return f"parser.add_argument({text})"
