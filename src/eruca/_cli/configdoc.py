"""Writes docs/CONFIG.md from the declared options: `python -m eruca._cli.configdoc docs/CONFIG.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from eruca._cli.optionlist import EVERY_SERVER, OptionFacts, list_options

_INTRO = """\
# Configuration

This page is generated from the options declared in the code (`make generate`); a test fails when it is out of date.

Options have the names of the `.conf` files of Apache RocketMQ 4.9. They can be set in these ways; each overrides the
ones before it:

1. its default;
2. a change while the server ran (`updateBrokerConfig`) without a `.conf` file: a broker keeps it in
   `config/erucaOptions.properties` of its store, a name server in the file of `configStorePath`;
3. a `.conf` file of RocketMQ: `eruca broker -c broker.conf` with `listenPort=10911`. The file overrides the variable
   `NAMESRV_ADDR`, as in Java. A change while the server runs is written to this file; its other lines stay as they are;
4. an environment variable, `ERUCA_` and the name in capitals: `ERUCA_LISTEN_PORT=10911`;
5. a flag: `--listen-port 10911`, or `--option listenPort=10911`.

`eruca broker -p` prints the options in force and where each was set; `eruca config explain KEY` explains one option.
A key of 4.9 that has no effect here is accepted, and logged once at the start. An unknown key is logged as a warning
with the nearest known key.

`eruca up` creates a store with smaller files than the defaults below (64 MiB of commit log). An existing store keeps
the file sizes it was created with unless an option sets others.

Servers bind to loopback. An address that other machines can reach needs accounts (`aclEnable=true`, which
`eruca init` sets up), or `--insecure`: then whoever reaches it can read, send and delete everything.
"""
_DIFFERENCES = """\
## Where 3.x and 4.9 differ

The defaults are those of 4.9. If you come from 3.x and rely on the old values, set them.

| option | 3.x | 4.9 | unit | meaning |
| --- | --- | --- | --- | --- |
"""
_SECTIONS = {
    "broker": "## Broker\n\n`eruca broker`, `eruca up`.\n",
    "store": "## Store\n\nRead by the broker, from the same file.\n",
    "name server": "## Name server\n\n`eruca nameserver`.\n",
    EVERY_SERVER: "## Every server\n\nLimits that peers of a broker, a name server or a filter server cannot exceed. "
    "A filter server reads them when it starts.\n",
    "filter server": "## Filter server\n\n`eruca filterserver`.\n",
    "console": "## Console\n\n`eruca console`, `eruca up`. [The guide](guide/console.md) explains them.\n",
    "every server": "## Every server\n\nBroker, name server and filter server; `eruca up` sets them for both of its"
    " servers. [Security](guide/security.md) explains them.\n",
    "client": "## Client\n\nClients do not read these yet; a Java client takes them as system properties.\n",
}
_IGNORED = """\
## Accepted, without effect

Keys of 4.9 that a file may contain and that have no effect here, with the reason.

| key | default in 4.9 | why |
| --- | --- | --- |
"""
_HEAD = "| key | default | values | unit | at run time | meaning |\n| --- | --- | --- | --- | --- | --- |\n"


def write_page() -> str:
    """Return the whole page."""
    options = list_options()
    parts = [_INTRO, _DIFFERENCES + "\n".join(_list_differences(options)) + "\n"]
    for part, heading in _SECTIONS.items():
        rows = list(dict.fromkeys(_write_row(facts) for facts in options if facts.part == part and not facts.no_effect))
        parts.append(f"{heading}\n{_HEAD}" + "\n".join(rows) + "\n")
    ignored = sorted((facts for facts in options if facts.no_effect), key=lambda facts: (facts.part, facts.key.lower()))
    rows = [
        f"| `{facts.key}`{' (name server)' if facts.part == 'name server' else ''} | {_code(facts.default)} "
        f"| {_escape(facts.no_effect)} |"
        for facts in ignored
    ]
    parts.append(_IGNORED + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _list_differences(options: Iterable[OptionFacts]) -> Iterator[str]:
    for facts in options:
        if facts.older:
            yield (
                f"| `{facts.key}` | {facts.older} | {facts.default} | {facts.info.unit} "
                f"| {_escape(facts.info.doc)}{' (to come)' if facts.coming else ''} |"
            )


def _write_row(facts: OptionFacts) -> str:
    run_time = "yes" if facts.info.mutable else ""
    cells = [f"`{facts.key}`", _code(facts.default), _escape(facts.values), facts.info.unit, run_time]
    return f"| {' | '.join(cells)} | {_escape(facts.info.doc)} |"


def _code(text: str) -> str:
    return f"`{_escape(text)}`" if text else ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(write_page(), encoding="utf-8")
