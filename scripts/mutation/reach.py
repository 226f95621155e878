"""Which tests reach which line: recorded once in one run on an instrumented copy, and kept for the next."""

import ast
import hashlib
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mutation.changes import Mutant
from mutation.environment import REACHED
from mutation.running import ROOT, run_tests

SOURCES = ROOT / "src"
Place = tuple[str, int]  # a module's path below src, and a line


@dataclass
class Reach:
    """The record: per test file the hash of its text, per test its seconds and places."""

    files: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    places: dict[str, list[Place]] = field(default_factory=dict)
    shared: set[Place] = field(default_factory=set)

    @cached_property
    def tests_by_place(self) -> dict[Place, set[str]]:
        found: dict[Place, set[str]] = defaultdict(set)
        for test, places in self.places.items():
            for place in places:
                found[place].add(test)
        return found

    def list_stages(self, mutant: Mutant, modules: Sequence[Path], *, at_first: int) -> list[list[str]]:
        """The tests that reach the line, the fastest first, and those that survivors meet: each stage without those before it."""
        places = set(places_of(mutant, modules))
        reaching = {test for place in places for test in self.tests_by_place.get(place, ())}
        named = {test for test in self.seconds if file_of(test).endswith(f"/test_{mutant.path.stem}.py")}
        # the schema is made before any test, and whatever opens a registry depends on it
        others = set(self.seconds) if places & self.shared else set()
        ordered = self._fastest(reaching, mutant)
        stages = [ordered[:at_first], ordered[at_first:], self._fastest(named - reaching, mutant)]
        stages.append(self._fastest(others - reaching - named, mutant))
        return [stage for stage in stages if stage]

    def _fastest(self, tests: Iterable[str], mutant: Mutant) -> list[str]:
        """Those of a file with the module's name are ten times as likely to notice."""
        return sorted(tests, key=lambda test: self.seconds[test] / (10 if mutant.path.stem in file_of(test) else 1))


def file_of(test: str) -> str:
    return test.partition("::")[0]


def record_reach(modules: Sequence[Path], tests: Sequence[str], kept: Path) -> Reach:
    """The record of these tests; only files that changed since the last one run again."""
    hashes = {str(path.relative_to(ROOT)): hash_of([path]) for path in list_files(tests)}
    reach = load(kept) if kept.exists() else Reach()
    changed = [path for path, value in hashes.items() if reach.files.get(path) != value]
    for test in [test for test in reach.seconds if hashes.get(file_of(test)) != reach.files.get(file_of(test))]:
        del reach.seconds[test]
        reach.places.pop(test, None)
    if changed:
        print(f"recording what {len(changed)} test files reach", flush=True)
        record(reach, modules, changed)
        reach.files = hashes
        save(reach, kept)
    return reach


def record(reach: Reach, modules: Sequence[Path], files: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="lakebed-reach-") as directory:
        copied = Path(directory) / "src"
        shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns("__pycache__"))
        numbers: list[Place] = []
        for path in modules:
            (copied / path.relative_to(SOURCES)).write_text(instrument(path, numbers), encoding="utf-8")
        output = Path(directory) / "reached.txt"
        report = run_tests(files, copied=copied, timeout_s=7200, **{REACHED: str(output)})
        if not report.seconds:
            raise SystemExit(f"nothing was recorded:\n{report.output}")
        for test, reason in report.failed.items():
            print(f"left out, because it fails without any change: {test}: {reason}", flush=True)
        for test in set(report.seconds) - set(report.failed) - set(report.skipped):
            reach.seconds[test] = report.seconds[test]
        for line in output.read_text(encoding="utf-8").splitlines():
            number, _, current = line.partition("\t")
            test = current.rpartition(" ")[0]  # pytest adds the phase
            if test in reach.seconds:
                reach.places.setdefault(test, []).append(numbers[int(number)])
            elif not current:
                reach.shared.add(numbers[int(number)])


def instrument(path: Path, numbers: list[Place]) -> str:
    """The module with a probe before each statement of its functions, and without caches, which hide that a later test arrives, too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = str(path.relative_to(SOURCES))
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        function.decorator_list = [one for one in function.decorator_list if "lru_cache" not in ast.unparse(one)]
        _probe_bodies(function, name, numbers)
    after = next((number for number, node in enumerate(tree.body) if not _comes_first(node)), 0)
    tree.body.insert(after, ast.parse("from mutation import probe as _probe").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _comes_first(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _probe_bodies(node: ast.AST, name: str, numbers: list[Place]) -> None:
    for part in list(ast.iter_child_nodes(node)):
        if not isinstance(part, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            _probe_bodies(part, name, numbers)
    for body in [getattr(node, name_of_body, None) for name_of_body in ("body", "orelse", "finalbody")]:
        if isinstance(body, list):
            probed: list[ast.stmt] = []
            for statement in body:
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    probed += ast.parse(f"_probe.at({len(numbers)})").body
                    numbers.append((name, statement.lineno))
                probed.append(statement)
            body[:] = probed


def places_of(mutant: Mutant, modules: Sequence[Path]) -> Iterator[Place]:
    """The places that show that the mutant's line is reached."""
    name = str(mutant.path.relative_to(SOURCES))
    tree = ast.parse(mutant.path.read_text(encoding="utf-8"))
    chain = _statements_around(tree, mutant.line)
    if any(isinstance(statement, ast.FunctionDef) for statement in chain):
        innermost = chain[-1]
        if isinstance(innermost, ast.FunctionDef):  # a default value
            yield from ((name, statement.lineno) for statement in ast.walk(innermost) if isinstance(statement, ast.stmt))
        else:
            yield name, innermost.lineno
    elif chain:
        names = _names_of(chain[0])
        private = {name for name in names if name.startswith("_")}
        yield from _uses_of(private, [mutant.path])
        yield from _uses_of(names - private, modules)


def _statements_around(tree: ast.Module, line: int) -> list[ast.stmt]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)]
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))


def _names_of(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _uses_of(names: set[str], modules: Sequence[Path], depth: int = 3) -> Iterator[Place]:
    """Where functions use what a module defines, and what other definitions make of it."""
    for path in modules:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for top in tree.body:
            inside = {id(part) for node in ast.walk(top) if isinstance(node, ast.FunctionDef) for part in ast.walk(node)}
            for statement in [node for node in ast.walk(top) if isinstance(node, ast.stmt)]:
                if not names & _mentioned(statement):
                    continue
                if id(statement) in inside:
                    yield str(path.relative_to(SOURCES)), statement.lineno
                elif depth and statement is top and not names >= _names_of(top):
                    yield from _uses_of(_names_of(top) - names, modules, depth - 1)


def _mentioned(statement: ast.AST) -> set[str]:
    return {
        node.id if isinstance(node, ast.Name) else node.attr for node in ast.walk(statement) if isinstance(node, ast.Name | ast.Attribute)
    }


def list_files(tests: Iterable[str]) -> list[Path]:
    places = [ROOT / test for test in tests]
    return sorted(path for place in places for path in (place.rglob("test_*.py") if place.is_dir() else [place]))


def hash_of(paths: Iterable[Path]) -> str:
    value = hashlib.sha256()
    for path in paths:
        value.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return value.hexdigest()[:16]


def save(reach: Reach, kept: Path) -> None:
    numbers = {
        place: number for number, place in enumerate(sorted({*reach.shared, *(one for places in reach.places.values() for one in places)}))
    }
    written = {
        "places": list(numbers),
        "files": reach.files,
        "seconds": reach.seconds,
        "reached": {test: [numbers[place] for place in places] for test, places in reach.places.items()},
        "shared": [numbers[place] for place in reach.shared],
    }
    kept.write_text(json.dumps(written), encoding="utf-8")


def load(kept: Path) -> Reach:
    read = json.loads(kept.read_text(encoding="utf-8"))
    places: list[Place] = [(name, line) for name, line in read["places"]]
    reached = {test: [places[number] for number in numbers] for test, numbers in read["reached"].items()}
    return Reach(read["files"], read["seconds"], reached, {places[number] for number in read["shared"]})
