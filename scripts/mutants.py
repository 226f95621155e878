"""Do the tests notice? A sample of small changes to a package, each of which some test should catch.

    .venv/bin/python scripts/mutants.py --package registry --tests tests/registry --wider tests/compaction tests/spark --count 50

A mutant is the package with one comparison, constant, operator, answer or piece of SQL turned into another. The tests run against a copy,
so the working tree stays as it is; what survives is printed with its line. Some changes alter nothing that can be observed: read them,
and write a test for the others.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 300.0  # tests that hang have noticed something, too
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SQL = re.compile(r"\b(SELECT|UPDATE|INSERT INTO|DELETE FROM)\b")
IN_SQL = [
    (" AND ", " OR "), (" OR ", " AND "), (" IS NULL", " IS NOT NULL"), (" IS NOT NULL", " IS NULL"), (" < ", " <= "), (" > ", " >= "),
    (" <= ", " < "), (" >= ", " > "), (" = ", " <> "), (" + 1", " + 2"), (" ORDER BY ", " ORDER BY -"), (" DESC", ""),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """The `choice`-th change of the `node`-th node of a module."""

    path: Path
    node: int
    choice: int
    line: int
    told: str

    def write(self) -> str:
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        node = next(islice(ast.walk(tree), self.node, None))
        list(changes_of(node))[self.choice][1](node)
        return ast.unparse(tree)


def list_mutants(path: Path) -> Iterator[Mutant]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # what decorators say of slots or the size of a cache changes nothing that a test could see
    decorating = {id(part) for node in ast.walk(tree) for top in getattr(node, "decorator_list", ()) for part in ast.walk(top)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in decorating:
            continue
        for choice, (told, _) in enumerate(changes_of(node)):
            yield Mutant(path, number, choice, getattr(node, "lineno", 0), told)


def changes_of(node: ast.AST) -> Iterator[tuple[str, Callable[..., None]]]:
    """What may be done to a node, and how it is told."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        new = COMPARISONS[type(node.ops[0])]
        yield f"{ast.unparse(node)}: {new.__name__}", lambda n: n.ops.__setitem__(0, new())
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield f"{ast.unparse(node)}: {other.__name__}", lambda n: setattr(n, "op", other())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)}: not not", lambda n: setattr(n, "operand", ast.UnaryOp(ast.Not(), n.operand))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        new_operator = ast.Sub if isinstance(node.op, ast.Add) else ast.Add
        yield f"{ast.unparse(node)}: {new_operator.__name__}", lambda n: setattr(n, "op", new_operator())
    elif (
        isinstance(node, ast.Return) and node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None)
    ):
        yield f"{ast.unparse(node)}: None", lambda n: setattr(n, "value", ast.Constant(None))
    elif isinstance(node, ast.Constant):
        yield from changes_of_constant(node)


def changes_of_constant(node: ast.Constant) -> Iterator[tuple[str, Callable[..., None]]]:
    value = node.value
    if isinstance(value, bool):
        yield f"{value}: {not value}", lambda n: setattr(n, "value", not value)
    elif isinstance(value, int):
        yield f"{value}: {value + 1}", lambda n: setattr(n, "value", value + 1)
    elif isinstance(value, str) and SQL.search(value):
        for old, new in IN_SQL:
            if old in value:
                yield (
                    f"SQL{old}->{new} in {' '.join(value.split())[:80]}",
                    lambda n, o=old, w=new: setattr(n, "value", value.replace(o, w, 1)),
                )


def survives(mutant: Mutant, copied: Path, tests: list[str]) -> bool:
    target = copied / mutant.path.relative_to(ROOT / "src")
    original = target.read_text(encoding="utf-8")
    target.write_text(mutant.write(), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "-m",
        "not long",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(copied)}, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_text(original, encoding="utf-8")
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="registry", help="below src/lakebed; a module's name without .py works, too")
    parser.add_argument("--tests", nargs="+", default=["tests/registry"])
    parser.add_argument("--wider", nargs="+", default=[], help="run for what survives those")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    place = ROOT / "src/lakebed" / chosen.package
    modules = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    found = [mutant for path in modules for mutant in list_mutants(path)]
    sample = random.Random(chosen.seed).sample(found, min(chosen.count, len(found)))  # noqa: S311 - no secret
    alive = 0
    with tempfile.TemporaryDirectory(prefix="lakebed-mutants-") as directory:
        copied = Path(directory) / "src"
        shutil.copytree(ROOT / "src", copied, ignore=shutil.ignore_patterns("__pycache__"))
        for number, mutant in enumerate(sample, 1):
            began = time.monotonic()
            lives = survives(mutant, copied, chosen.tests) and (not chosen.wider or survives(mutant, copied, chosen.wider))
            alive += lives
            where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
            print(
                f"{number:3}/{len(sample)} {'SURVIVED' if lives else 'killed'} {time.monotonic() - began:5.0f} s  {where}  {mutant.told}",
                flush=True,
            )
    print(f"{len(sample) - alive} of {len(sample)} were caught, out of {len(found)} that could be made")
    raise SystemExit(1 if alive else 0)


if __name__ == "__main__":
    main()
