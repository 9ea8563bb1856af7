"""Write the generated parts of analysis/MARTS.md; a house test checks that they are current."""

import cog

from analysis.catalog import Model, load_catalog


def index() -> None:
    """Write a table of all marts: the name, with a link, and the summary."""
    cog.out("| mart | what it holds |\n| --- | --- |\n")
    for model in sorted(load_catalog().layer("marts"), key=lambda model: model.name):
        cog.out(f"| [{model.name}](#{model.name}) | {model.summary} |\n")


def marts() -> None:
    """Write a chapter per mart: its summary, what a row stands for, its method, its columns."""
    for model in sorted(load_catalog().layer("marts"), key=lambda model: model.name):
        cog.out(f"\n### {model.name}\n\n{model.summary} One row per {', '.join(model.grain)}.\n\n")
        cog.out(f"{model.method}\n\n")
        if model.cost:
            cog.out(f"Cost: {model.cost}\n\n")
        for name, parameter in model.parameters.items():
            cog.out(f"Parameter `{name}` = {parameter.value}: {parameter.doc}.\n\n")
        _columns(model)


def checks() -> None:
    """Write a table of all checks: the name, the severity, and which rows it looks for."""
    cog.out("| check | severity | looks for |\n| --- | --- | --- |\n")
    for model in sorted(load_catalog().layer("checks"), key=lambda model: model.name):
        cog.out(f"| `{model.name}` | {model.severity} | {model.summary} |\n")


def _columns(model: Model) -> None:
    """Write a table of the columns of one mart."""
    cog.out("| column | type | meaning |\n| --- | --- | --- |\n")
    for column in model.columns:
        cog.out(f"| `{column.name}` | {column.type} | {column.doc} |\n")
