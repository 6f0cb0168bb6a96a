"""Moves that need the syntax tree: each takes an EVOLVE block and gives others that compute the same in another way.

k_major       the second operand of a dot transposed outside the kernel and read along K, as Hopper's TF32 wants it
rows_at_once  a kernel of one row a program made one of several rows a program, side by side in one block
one_pass      a variance as mean square minus squared mean, so that both sums are taken at once
reciprocal    divisions by one divided by
exp2          powers of two in place of powers of e
few_masks     comparisons with a size left out where whole blocks make it up

Edits are made at the places of the tree's nodes, so that the rest of the text, comments too, stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

_LOG2_E = 1.4426950408889634

Edit = tuple[ast.AST, str]


def rewrites_of(block: str) -> Iterator[tuple[str, str]]:
    """(name, block) of everything that these moves make of a block."""
    if not block.isascii():  # the tree counts bytes
        return
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return
    for make in (_k_major, _rows_at_once, _one_pass, _reciprocal, _exp2, _few_masks):
        yield from make(block, tree)


def _edited(block: str, edits: Sequence[Edit]) -> str:
    """The block with the text of these nodes replaced; none may lie in another."""
    starts = [0]
    for line in block.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans = sorted(
        (
            (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset, text)  # type: ignore[attr-defined]
            for node, text in edits
        ),
        reverse=True,
    )
    for start, end, text in spans:
        block = block[:start] + text + block[end:]
    return block


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _called(node: ast.AST, *names: str) -> bool:
    """Whether the node is a call of one of these, written so."""
    return isinstance(node, ast.Call) and _text(node.func) in names


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _launches(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.Call, ast.Call]]:
    """(body, the call of pallas_call, the call with the arrays) of each launch whose body is written by name."""
    functions = _functions(tree)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and _called(node.func, "pl.pallas_call")):
            continue
        launch = node.func
        assert isinstance(launch, ast.Call)
        body = launch.args[0] if launch.args else None
        if isinstance(body, ast.Call) and body.args:  # grouped(body, ...) of another move
            body = body.args[0]
        if isinstance(body, ast.Name) and body.id in functions:
            yield functions[body.id], launch, node


# ---- dots ------------------------------------------------------------------------------------------------------


def _k_major(block: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """For each input that is read with K along its rows as a dot's second operand, and for all of them."""
    every: list[Edit] = []
    found = 0
    for body, _, call in _launches(tree):
        refs = [argument.arg for argument in body.args.args if argument.arg.endswith("_ref")]
        for ref, array in zip(refs, call.args, strict=False):
            edits = _transposed(body, ref, array)
            if edits and not any(node is array for node, _ in every):
                every += edits
                found += 1
                yield "k_major", _edited(block, edits)
    if found > 1 and len({id(node) for node, _ in every}) == len(every):
        yield "k_major", _edited(block, every)


def _transposed(body: ast.FunctionDef, ref: str, array: ast.expr) -> list[Edit]:
    if not isinstance(array, ast.Name):
        return []
    seconds = {
        node.args[1].id
        for node in ast.walk(body)
        if isinstance(node, ast.Call)
        and _called(node, "jnp.dot")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Name)
    }
    loaded = {
        name.id
        for node in ast.walk(body)
        if isinstance(node, ast.Assign) and f"{ref}.at[" in _text(node.value)
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    if not loaded & seconds:
        return []
    edits: list[Edit] = [(array, "")]
    parents = {child: node for node in ast.walk(body) for child in ast.iter_child_nodes(node)}
    rank = 0
    for node in ast.walk(body):
        if not (isinstance(node, ast.Name) and node.id == ref):
            continue
        use = parents[node]
        if not isinstance(use, ast.Attribute):
            return []
        if use.attr == "shape":
            edits.append((use, ""))
            continue
        place = parents.get(use)
        if use.attr != "at" or not isinstance(place, ast.Subscript) or not isinstance(place.slice, ast.Tuple):
            return []
        items = place.slice.elts
        if len(items) < 2 or rank not in (0, len(items)) or "[:, None]" not in _text(items[-2]):
            return []  # it is read with K along its columns already
        rank = len(items)
        edits += [(items[-2], _text(items[-1])), (items[-1], _text(items[-2]))]
    shape = f"{ref}.shape[::-1]" if rank == 2 else f"(*{ref}.shape[:-2], {ref}.shape[-1], {ref}.shape[-2])"
    outside = f"{array.id}.T" if rank == 2 else f"jnp.swapaxes({array.id}, -1, -2)"
    texts = {"shape": shape, "array": outside}
    return [(node, text or texts["array" if node is array else "shape"]) for node, text in edits if rank]


# ---- rows ------------------------------------------------------------------------------------------------------


def _rows_at_once(block: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    launches = list(_launches(tree))
    if len(launches) != 1 or "ROWS_AT_ONCE" in block or "fori_loop" in block:
        return
    body, launch, _ = launches[0]
    grid = next((word.value for word in launch.keywords if word.arg == "grid"), None)
    if not isinstance(grid, ast.Tuple) or len(grid.elts) != 1:
        return
    named = {
        node.targets[0].id: node
        for node in ast.walk(body)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    rows = [name for name, node in named.items() if _text(node.value) == "pl.program_id(0)"]
    cols = [name for name, node in named.items() if _called(node.value, "jnp.arange")]
    if len(rows) != 1 or len(cols) != 1 or _text(body).count("program_id") != 1:
        return
    row, col = rows[0], cols[0]
    places = [
        node.slice
        for node in ast.walk(body)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "at"
    ]
    if not places or any(_text(place).strip("()") != f"{row}, {col}" for place in places):
        return
    array = body.args.args[0].arg
    edits: list[Edit] = [
        (named[row].value, "(pl.program_id(0) * ROWS_AT_ONCE + jnp.arange(ROWS_AT_ONCE))[:, None]"),
        (named[col].value, f"{_text(named[col].value)}[None, :]"),
        (grid.elts[0], f"pl.cdiv({_text(grid.elts[0])}, ROWS_AT_ONCE)"),
    ]
    compared = [node for node in ast.walk(body) if isinstance(node, ast.Compare) and _text(node.left) == col]
    edits += [(node, f"({_text(node)}) & ({row} < {array}.shape[0])") for node in compared]
    made = _edited(block, edits)
    if not compared or any(_called(node, "jnp.mean", "jnp.var") for node in ast.walk(body)):
        return
    for _ in range(16):  # reductions may lie in one another: the first that is not yet along an axis, again and again
        found = next(
            (
                node
                for node in ast.walk(ast.parse(made))
                if isinstance(node, ast.Call)
                and _called(node, "jnp.sum", "jnp.max", "jnp.min")
                and len(node.args) == 1
                and not node.keywords
            ),
            None,
        )
        if found is None:
            break
        made = _edited(made, [(found, f"{_text(found.func)}({_text(found.args[0])}, axis=1)[:, None]")])
    for count in (2, 4):
        yield "rows_at_once", f"ROWS_AT_ONCE = {count}\n{made}"


_CENTRED = re.compile(r"^    (\w+) = jnp\.where\(\w+, (\w+) - (\w+), 0\.0\)$", re.MULTILINE)


def _one_pass(block: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Only where the variance is the mean of a centred value's squares and the mean has a name."""
    found = _CENTRED.search(block)
    if found is None:
        return
    centred, value, mean = found.groups()
    variance = re.compile(rf"jnp\.sum\({centred} \* {centred}(, axis=1)?\)(\[:, None\])?( / \w+)")
    loaded = re.search(rf"^    {value} = plgpu\.load\(.*other=0\.0\)$", block, re.MULTILINE)
    if loaded and len(variance.findall(block)) == 1:
        once = rf"jnp.maximum(jnp.sum({value} * {value}\1)\2\3 - {mean} * {mean}, 0.0)"
        yield "one_pass", variance.sub(once, block)


# ---- arithmetic ------------------------------------------------------------------------------------------------


def _bodies(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for function in _functions(tree).values():
        if any(isinstance(node, ast.Attribute) and _text(node) == "plgpu.load" for node in ast.walk(function)):
            yield function


def _reciprocal(block: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Of innermost divisions by what is no constant."""
    edits: list[Edit] = []
    for body in _bodies(tree):
        for node in ast.walk(body):
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Div)
                and not isinstance(node.right, ast.Constant)
                and not (isinstance(node.left, ast.Constant))
                and not any(isinstance(part, ast.Div) for part in ast.walk(node.left))
                and not any(isinstance(part, ast.Div) for part in ast.walk(node.right))
            ):
                left = _text(node.left)
                left = f"({left})" if isinstance(node.left, ast.BinOp) else left
                edits.append((node, f"{left} * (1.0 / {_grouped(node.right)})"))
    if edits:
        yield "reciprocal", _edited(block, edits)


def _grouped(node: ast.expr) -> str:
    return f"({_text(node)})" if isinstance(node, ast.BinOp) else _text(node)


def _exp2(block: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    edits: list[Edit] = [
        (node, f"jnp.exp2(({_text(node.args[0])}) * {_LOG2_E})")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and _called(node, "jnp.exp")
        and not any(_called(part, "jnp.exp") for part in ast.walk(node.args[0]))
    ]
    if edits:
        yield "exp2", _edited(block, edits)


# ---- masks -----------------------------------------------------------------------------------------------------

_BELOW = '''def below(index, size, block):
    """index < size, or an index that is always below where whole blocks make up the size."""
    return index >= 0 if size % block == 0 else index < size


'''


def _few_masks(block: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Comparisons of an index `... + jnp.arange(BLOCK)`; one with zero is folded by the compiler."""
    if "def below(" in block or any(name in block for name in ("PROGRAMS_EACH", "ROWS_AT_ONCE")):
        return
    blocks: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found = re.search(r"\* (BLOCK_\w+) \+ jnp\.arange\(\1\)", _text(node.value))
            if found:
                blocks[node.targets[0].id] = found.group(1)
    edits: list[Edit] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
            index = node.left.value if isinstance(node.left, ast.Subscript) else node.left
            if isinstance(index, ast.Name) and index.id in blocks:
                edits.append((node, f"below({_text(node.left)}, {_text(node.comparators[0])}, {blocks[index.id]})"))
    place = re.search(r"^def ", block, re.MULTILINE)
    if edits and place:
        made = _edited(block, edits)
        yield "few_masks", made[: place.start()] + _BELOW + made[place.start() :]
