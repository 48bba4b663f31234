"""``lenity replay``: what rules would do, predicted from the traces of a strict run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lenity.cli.options import Json
from lenity.cli.studies import print_tables
from lenity.cli.terminal import print_document


def replay(
    traces: Annotated[Path, typer.Argument(help="Run directory with traces, or a traces.jsonl")],
    policy: Annotated[
        list[str], typer.Option("--policy", "-p", help="Rule to predict; repeatable")
    ],
    gamma: Annotated[
        int | None, typer.Option(min=1, help="Draft tokens per round (default: as traced)")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict tokens per target pass and regret of rules, in milliseconds each, without a model.

    Of a run with several arms the strict one is taken, at its largest gamma.
    """
    from lenity.workbench.replay import Replayer, replayable
    from lenity.workbench.tables import NATS, PERCENT, PLAIN, Column, Table
    from lenity.workbench.trace import TRACES, read_traces

    file = traces / TRACES if traces.is_dir() else traces
    replayer = Replayer(replayable(read_traces(file)))
    rows: list[dict[str, Any]] = []
    for rule in policy:
        said = replayer.predict(rule, gamma=gamma)
        rows.append(
            {
                "policy": said.policy,
                "tokens_per_target_pass": said.tokens_per_target_pass,
                "relaxed_share": said.relaxed_share,
                "coverage": said.coverage,
                "regret_per_request": said.regret_per_request,
            }
        )
    if as_json:
        print_document({"label": "predicted", "requests": replayer.num_requests, "rules": rows})
        return
    columns = (
        Column(key="policy", label="Policy"),
        Column(key="tokens_per_target_pass", label="Tokens per target pass", unit=PLAIN),
        Column(key="relaxed_share", label="Relaxed tokens", unit=PERCENT),
        Column(key="coverage", label="Requests relaxed", unit=PERCENT),
        Column(key="regret_per_request", label="Regret per request", unit=NATS),
    )
    title = f"Predicted from {replayer.num_requests} strict requests; measure before use"
    print_tables((Table.of("replay", title, columns, rows),))
