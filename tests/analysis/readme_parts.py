"""Generated parts of analysis/README.md; a house test checks that they are current."""

import cog

from analysis.catalog import Model, load_catalog


def marts() -> None:
    """Put every mart here: what it is, one row per what, how it comes about, its columns."""
    for model in sorted(load_catalog().layer("marts"), key=lambda model: model.name):
        cog.out(f"\n### {model.name}\n\n{model.summary} One row per {', '.join(model.grain)}.\n\n")
        cog.out(f"{model.method}\n\n")
        if model.cost:
            cog.out(f"Cost: {model.cost}\n\n")
        for name, parameter in model.parameters.items():
            cog.out(f"Parameter `{name}` = {parameter.value}: {parameter.doc}.\n\n")
        _columns(model)


def checks() -> None:
    """Put every check here: name, severity, what it looks for."""
    cog.out("| check | severity | looks for |\n| --- | --- | --- |\n")
    for model in sorted(load_catalog().layer("checks"), key=lambda model: model.name):
        cog.out(f"| `{model.name}` | {model.severity} | {model.summary} |\n")


def _columns(model: Model) -> None:
    cog.out("| column | type | meaning |\n| --- | --- | --- |\n")
    for column in model.columns:
        cog.out(f"| `{column.name}` | {column.type} | {column.doc} |\n")
