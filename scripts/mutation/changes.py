"""Mutants: the small changes that can be made to a module, and a sample of them that stays the same while other modules change."""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

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
    """The `choice`-th change of the `node`-th node of a module; `key` stays while the text of its line does."""

    path: Path
    node: int
    choice: int
    line: int
    change: str
    key: str

    def write(self) -> str:
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        node = next(islice(ast.walk(tree), self.node, None))
        list(_changes_of(node))[self.choice][1](node)
        return ast.unparse(tree)


def draw_sample(mutants: Iterable[Mutant], *, count: int, seed: int) -> list[Mutant]:
    """By the hash of each mutant alone: a change of one module neither adds nor moves those of another's lines."""
    drawn = sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed}:{mutant.key}".encode()).digest())[:count]
    return sorted(drawn, key=lambda mutant: (mutant.path, mutant.line, mutant.change))


def list_mutants(path: Path, *, root: Path) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    unobserved = {id(part) for node in ast.walk(tree) for top in _unobserved(node) for part in ast.walk(top)}
    equal: Counter[str] = Counter()
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in unobserved:
            continue
        for choice, (change, _) in enumerate(_changes_of(node)):
            line: int = getattr(node, "lineno", 1)
            name = f"{path.relative_to(root)}:{lines[line - 1].strip()}:{change}"
            equal[name] += 1
            key = hashlib.sha256(f"{name}:{equal[name]}".encode()).hexdigest()[:16]
            yield Mutant(path, number, choice, line, change, key)


def _unobserved(node: ast.AST) -> Iterator[ast.AST]:
    """What no test can see: slots and caches, texts for readers of the source or of the log, types, and assertions about lengths."""
    yield from getattr(node, "decorator_list", ())
    match node:
        case ast.Expr(value=ast.Constant()):
            yield node
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"))):
            yield node
        case ast.Call(func=ast.Name(id="zip")):
            yield from node.keywords
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            yield node
        case ast.AnnAssign():
            yield node.annotation
        case ast.arg(annotation=ast.AST() as annotation):
            yield annotation
        case ast.FunctionDef(returns=ast.AST() as returns):
            yield returns
        case _:
            pass


def _changes_of(node: ast.AST) -> Iterator[tuple[str, Callable[..., None]]]:
    """What may be done to a node, and how it is described."""
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
        yield from _changes_of_constant(node)


def _changes_of_constant(node: ast.Constant) -> Iterator[tuple[str, Callable[..., None]]]:
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
