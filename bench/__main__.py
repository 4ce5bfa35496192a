"""`python -m bench`: run the benchmarks; JSON on standard output, everything for people on standard error."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from bench.runner import list_benches, print_table, run_bench, save_document
from eruca.errors import ErucaError

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice(list_benches()), help="Run only this one.")
@click.option("--quick", is_flag=True, help="Run everything once with little work: a smoke test, not a measurement.")
@click.option(
    "--before",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Compare with another checkout of Eruca that has its own environment; not for `delay` and `up`.",
)
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    help="Directory for the result documents [default: bench-results].",
)
def main(names: tuple[str, ...], quick: bool, before: Path | None, results: Path) -> None:
    """Run the benchmarks, each compared with plain loops or peers that do the same work in the same run."""
    # A run that is interrupted still removes its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 160)
    documents = []
    for name in names or list_benches():
        try:
            document = run_bench(name, console, quick=quick, before=before)
        except ErucaError as error:
            raise click.ClickException(str(error)) from error
        save_document(document, results)
        print_table(document, console)
        documents.append(document)
    # One document, also when several benchmarks ran.
    shown = documents[0] if len(documents) == 1 else {"benches": documents}
    click.echo(json.dumps(shown, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
