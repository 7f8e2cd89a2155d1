"""The command line: ``streamgauge COMMAND``, one module per command.

Exit codes: 0 success, 1 a check that missed, 2 bad input (one line on stderr), 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from rich.markup import escape

from streamgauge import __version__
from streamgauge.cli import (
    barcode,
    bench,
    check,
    convert,
    counterexample,
    demo,
    evaluate,
    inspect,
    pointwise,
    selftest,
    verify,
)
from streamgauge.cli.terminal import Failed, Terminated, help_text, one_line, prepare_streams, say, termination
from streamgauge.theory.errors import InputError

app = typer.Typer(
    name="streamgauge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Take the mixing matrices out of a hyper-connection network, and check that nothing changed.",
)
for name, module in {
    "demo": demo,
    "convert": convert,
    "eval": evaluate,
    "inspect": inspect,
    "barcode": barcode,
    "check": check,
    "counterexample": counterexample,
    "verify": verify,
    "verify-pointwise": pointwise,
    "selftest": selftest,
}.items():
    app.command(name, epilog=escape(module.EXAMPLE), help=help_text(module.command))(module.command)
app.add_typer(bench.app, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"streamgauge {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on ``argv`` (default: the process's own) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    try:
        with termination():
            return _run(arguments)
    except InputError as error:
        return _refuse(error)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        return _refuse(f"this needs {error.name}: pip install 'streamgauge[torch]'")
    except BrokenPipeError:  # the reader (head, less) has gone: nothing more to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{place}{error.strerror or error}")
    except KeyboardInterrupt:
        return _interrupted()
    except Terminated:
        say("streamgauge: terminated")
        return 143


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="streamgauge", standalone_mode=False)
    except Failed:
        return 1
    except typer.Abort:
        return _interrupted()
    except Exception as error:
        # Wrong options; typer carries its own copy of click in some releases, so go by what the exception offers.
        if not hasattr(error, "format_message"):
            raise
        return _refuse(error.format_message() or "no command given; try streamgauge --help")
    sys.stdout.flush()
    if code == 130:
        return _interrupted()
    return code if isinstance(code, int) else 0


def _refuse(message: object) -> int:
    say(f"streamgauge: error: {one_line(message)}")
    return 2


def _interrupted() -> int:
    say("streamgauge: interrupted")
    return 130
