"""Plans short enough to be read: one line a node, with the rows that came out of it, and one line for many partitions that are alike."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from benchmarks.world import World

WIDTH = 150
_CONDITIONS = ("Index Cond", "Hash Cond", "Merge Cond", "Join Filter", "Filter", "Sort Key", "Group Key", "Remote SQL")
Node = Mapping[str, Any]


def explained(world: World, query: str, *, analyze: bool) -> str:
    """The plan of the query. `analyze` runs it once more, and shows how many rows each node really gave."""
    options = "verbose, costs off, format json" + (", analyze, timing off, buffers off" if analyze else "")
    (((plan,),),) = (world.ask(f"explain ({options}) {query}"),)
    assert isinstance(plan, list)
    return short(plan[0]["Plan"])


def folded(ours: str, other: str) -> str:
    """Both plans as a page shows them to those who ask."""
    return f"<details><summary>Its plan, and the heap's</summary>\n\n```text\n{ours}\n```\n\n```text\n{other}\n```\n\n</details>"


def short(plan: Node) -> str:
    """The lines of a plan that came as JSON."""
    return "\n".join(_lines(plan, 0))


def _lines(node: Node, depth: int) -> Iterator[str]:
    indent = "  " * depth
    yield _cut(f"{indent}{_title(node)}")
    for name in _CONDITIONS:
        if name in node:
            yield _cut(f"{indent}    {name}: {_text(node[name])}")
    for _, alike in groupby(_children(node), key=_kind):
        first, *others = alike
        yield from _lines(first, depth + 1)
        if others:
            yield f"{indent}  ... and {len(others)} more like it, with {_rows(others)}"


def _children(node: Node) -> list[Node]:
    """Without the look at the seam, which every arm of a relation has, and without scans of sub-queries that do nothing else."""
    children = [child for child in node.get("Plans", []) if child.get("Relation Name") != "seam"]
    return [
        _children(child)[0] if child["Node Type"] == "Subquery Scan" and "Filter" not in child else child
        for child in children
    ]


def _title(node: Node) -> str:
    what = f"{node['Join Type']} " if node.get("Join Type", "Inner") != "Inner" else ""
    on = f" on {node['Relation Name']}" if "Relation Name" in node else ""
    name = f" using {node['Index Name']}" if "Index Name" in node else ""
    part = f" ({node['Subplan Name']})" if "Subplan Name" in node else ""
    if "Actual Loops" not in node:
        return f"{what}{node['Node Type']}{on}{name}{part}"
    loops = node["Actual Loops"]
    times = "never executed" if not loops else f"rows={node['Actual Rows']:.0f}" + (f" x {loops}" if loops > 1 else "")
    return f"{what}{node['Node Type']}{on}{name}{part}  [{times}]"


def _kind(node: Node) -> tuple[str, ...]:
    """Scans of partitions of one table are alike; anything with children of its own is like nothing else."""
    if node.get("Plans") or "Relation Name" not in node:
        return (str(id(node)),)
    return (node["Node Type"], node["Relation Name"].rstrip("0123456789"))


def _rows(nodes: Sequence[Node]) -> str:
    if "Actual Loops" not in nodes[0]:
        return "rows unknown"
    return f"{sum(node['Actual Rows'] * node['Actual Loops'] for node in nodes):.0f} rows in all"


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cut(line: str) -> str:
    short_line = " ".join(line.split())
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}{short_line[:WIDTH]}{' ...' if len(short_line) > WIDTH else ''}"
