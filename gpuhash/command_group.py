"""Print help and errors of our commands: no type beside a flag, whole paragraphs, and plain faults."""

from inspect import cleandoc
from typing import Any

import typer
from typer.core import TyperGroup, TyperOption

FAULT_PREFIX = "Value error, "  # which Typer's library pydantic sets before what is wrong


class CommandGroup(TyperGroup):
    """Holds the commands of a program. Its help shows no type beside a flag, and its errors no prefix."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the context `ctx` names; the text of a wrong value has no prefix."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(FAULT_PREFIX)
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the command group itself, with `--help`; none shows a type beside a flag."""
        return _with_plain_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return one command of the group by its name; None if there is none.

        The command's help shows no type beside a flag, and breaks no line where the source does. Without a
        context `ctx`, as tests ask for it, the command's own `--help` is not touched.
        """
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _with_plain_flags(command.params if ctx is None else command.get_params(ctx))
            command.help = _with_whole_paragraphs(command.help)
        return command


def _with_whole_paragraphs(text: str | None) -> str | None:
    """Return a help text with one line per paragraph; Typer would break lines where the source does."""
    if text is None:
        return None
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text).split("\n\n"))


def _with_plain_flags(parameters: list[Any]) -> list[Any]:
    """Change the flags among Click `parameters` so that help shows no type beside them; return the list."""
    for parameter in parameters:
        if isinstance(parameter, TyperOption) and parameter.is_flag:
            parameter.metavar = ""
    return parameters
