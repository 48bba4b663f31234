"""The ``lenity`` command. ``--help`` imports no torch: a command imports what it needs itself."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from lenity import __version__
from lenity.cli.audit import audit
from lenity.cli.audit_served import audit_served
from lenity.cli.demo import demo
from lenity.cli.doctor import doctor
from lenity.cli.draft_check import draft_check
from lenity.cli.generate import generate
from lenity.cli.list import list_
from lenity.cli.options import SettingsCommand
from lenity.cli.replay import replay
from lenity.cli.report import report
from lenity.cli.sweep import sweep
from lenity.cli.terminal import HUNG_UP, complain, hang_up, open_closed
from lenity.cli.train import train
from lenity.cli.tune import tune
from lenity.errors import LenityError
from lenity.registry import explain_value


class Commands(TyperGroup):
    """Turns what lenity refuses into a message and exit 2; tracebacks are for our own mistakes."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C exits 130, a reader of the output that went away 141."""
        open_closed()
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # here a reader that is gone can be told from a mistake
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):  # typer's, of a single option
                error.message = explain_value(error.__cause__)
            raise
        except LenityError as error:
            complain(str(error))
            raise typer.Exit(2) from None
        except BrokenPipeError:
            hang_up()
            raise typer.Exit(HUNG_UP) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            hang_up()
            complain(f"Expected room to write, got: {error}. Free some, or write elsewhere.")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("generate", cls=SettingsCommand)(generate)
app.command("demo")(demo)
app.command("list")(list_)
app.command("doctor")(doctor)
app.add_typer(train, name="train")
app.command("draft-check")(draft_check)
app.command("tune")(tune)
app.command("audit")(audit)
app.command("audit-served")(audit_served)
app.command("sweep")(sweep)
app.command("replay")(replay)
app.command("report")(report)


def _print_version(is_asked: bool) -> bool:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit
    return is_asked


@app.callback()
def _prepare(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and exit"),
    ] = False,
) -> None:
    """Speculative decoding: strict, or relaxed and accountable for what it gives away."""
    # Spinning OpenMP threads make torch ten times slower beside one busy process; it is read when
    # torch is first imported, which is after this.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
