"""The members of a cluster, one broker, and its options."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from eruca._console.brokers.reading import BrokerRowShown, OptionRow, read_brokers, read_detail
from eruca._console.identity.rights import Need
from eruca._console.pages.charts import draw_meter
from eruca._console.pages.commands import write_flags
from eruca._console.pages.forms import Field, change, read_fields
from eruca._console.pages.routing import Nav, Route
from eruca._console.pages.tables import Column, make_table, show_table
from eruca._console.pages.visit import Shown, Visit

TABS = ("state", "config", "replication")
_TONES = {"master": "accent", "slave": "", "fenced": "warning", "silent": "error"}
# The length at which a delay of a copy is worth a colour.
_LATE_S = 10.0

COLUMNS: tuple[Column[BrokerRowShown], ...] = (
    Column("where", "brokers.broker", lambda row: row.where, link=lambda visit, row: visit.url("brokers", row.where)),
    Column(
        "role",
        "brokers.role",
        lambda row: row.role,
        kind="tag",
        texts="brokers.role",
        tone=lambda row: _TONES.get(row.role, ""),
    ),
    Column("cluster", "brokers.cluster", lambda row: row.cluster, is_minor=True),
    Column("address", "brokers.address", lambda row: row.address, kind="code"),
    Column("epoch", "brokers.epoch", lambda row: row.epoch, kind="number", is_minor=True),
    Column("version", "brokers.version", lambda row: row.version),
    Column("uptime", "brokers.uptime", lambda row: row.uptime, kind="duration", is_minor=True),
    Column("rate_in", "brokers.rate_in", lambda row: row.rate_in, kind="rate"),
    Column("rate_out", "brokers.rate_out", lambda row: row.rate_out, kind="rate"),
    Column(
        "disk",
        "brokers.disk",
        lambda row: row.disk,
        kind="percent",
        tone=lambda row: "error" if (row.disk or 0) >= 0.9 else "warning" if (row.disk or 0) >= 0.75 else "",
    ),
    Column("disk_free", "brokers.free", lambda row: row.disk_free, kind="bytes", is_exported_only=True),
    Column(
        "lag_bytes",
        "brokers.lag",
        lambda row: row.lag_bytes,
        kind="bytes",
        tone=lambda row: "warning" if (row.lag_seconds or 0) > _LATE_S else "",
    ),
    Column("lag_seconds", "brokers.lag_time", lambda row: row.lag_seconds, kind="duration", is_minor=True),
)
OPTION_COLUMNS: tuple[Column[OptionRow], ...] = (
    Column("key", "brokers.option", lambda row: row.key, kind="code"),
    Column("value", "brokers.value", lambda row: row.value, tone=lambda row: "changed" if row.changed else ""),
    Column("default", "brokers.default", lambda row: row.default, tone=lambda row: "muted"),
    Column("unit", "brokers.unit", lambda row: row.unit, tone=lambda row: "muted", is_minor=True),
    Column("doc", "brokers.meaning", lambda row: row.doc, kind="prose"),
)
CONFIG_FIELDS = (
    Field("key", "brokers.option", required=True, chars_max=200),
    Field("value", "brokers.value", chars_max=2000),
)
PERMISSION_FIELDS = (
    Field(
        "permission",
        "brokers.permission",
        "choice",
        default="R",
        required=True,
        choices=("R", "RW"),
        choice_texts="brokers.permission",
        hint="brokers.permission.hint",
    ),
)


async def list_brokers(visit: Visit) -> Shown | Response:
    """Show all members of all broker names."""
    found = await read_brokers(visit.cluster)
    table = make_table(visit, "brokers", COLUMNS, found.rows, cut=found.cut)
    return show_table(
        visit,
        "brokers/list.html",
        table,
        problems=found.problems,
        silent=[row for row in found.rows if row.role == "silent"],
        command=visit.command("cluster", "list"),
    )


async def show_broker(visit: Visit) -> Shown | Response:
    """Show one member: its state, its configuration, or its replication."""
    where = visit.path["broker"]
    tab = visit.query.get("tab", TABS[0])
    tab = tab if tab in TABS else TABS[0]
    found = await read_detail(visit.cluster, where, visit.parts.meanings)
    commands = {
        "state": ["broker", "show", where],
        "config": ["broker", "config", "get", *write_flags(broker=where)],
        "replication": ["cluster", "lag"],
    }
    context = {
        "tab": tab,
        "tabs": [(each, visit.text(f"brokers.tab.{each}"), visit.url("brokers", where, tab=each)) for each in TABS],
        "where": where,
        "detail": found,
        "command": visit.command(*commands[tab]),
        "draw_meter": draw_meter,
    }
    if tab != "config":
        return Shown("brokers/detail.html", found, context, problems=found.problems)
    is_all = bool(visit.query.get("all"))
    options = found.options if is_all else [row for row in found.options if row.doc]
    if visit.query.get("changed"):
        options = [row for row in options if row.changed]
    table = make_table(visit, "options", OPTION_COLUMNS, options, search=lambda row: f"{row.key} {row.doc} {row.value}")
    return show_table(visit, "brokers/detail.html", table, problems=found.problems, **context)


async def change_option(visit: Visit) -> Shown:
    """Change one option of a broker."""
    where = visit.path["broker"]
    if visit.method == "GET":
        found = await read_detail(visit.cluster, where, visit.parts.meanings)
        key = visit.query.get("key", "") or str(visit.form.get("key", ""))
        row = next((each for each in found.options if each.key == key), None)
        values = {} if row is None else {"key": row.key, "value": row.value}
        meaning = visit.parts.meanings.get(key)
        # Which option it is was chosen on the page before.
        fields = CONFIG_FIELDS if row is None else (replace(CONFIG_FIELDS[0], kind="hidden"), *CONFIG_FIELDS[1:])
        return visit.show(
            "brokers/option.html", None, where=where, row=row, meaning=meaning, fields=fields, values=values
        )
    form = read_fields(visit, CONFIG_FIELDS)
    options = {form["key"]: form["value"] or ""}
    return await change(
        visit,
        action="broker.config",
        target=where,
        words=["broker", "config", "set", f"{form['key']}={form['value'] or ''}", "--broker", where],
        deed=lambda dry_run: visit.admin.brokers.set_config(options, broker=where, dry_run=dry_run),
        then=visit.url("brokers", where, tab="config"),
    )


async def change_permission(visit: Visit) -> Shown:
    """Have producers leave a broker, or come back."""
    where = visit.path["broker"]
    if visit.method == "GET":
        return visit.show("brokers/permission.html", None, where=where, fields=PERMISSION_FIELDS)
    wanted = read_fields(visit, PERMISSION_FIELDS)["permission"]
    brokers = visit.admin.brokers
    deed = brokers.wipe_write_permission if wanted == "R" else brokers.add_write_permission
    return await change(
        visit,
        action="broker.permission",
        target=where,
        words=["broker", "permission", where, wanted, "--yes"],
        deed=lambda dry_run: deed(where, dry_run=dry_run),
        then=visit.url("brokers", where),
        is_dangerous=wanted == "R",
    )


ROUTES = (
    Route(
        "/c/{cluster}/brokers",
        list_brokers,
        Need.VIEW,
        nav=Nav("cluster", 20, "nav.brokers", "brokers", "b"),
        summary="List brokers, masters and slaves.",
    ),
    Route(
        "/c/{cluster}/brokers/{broker}",
        show_broker,
        Need.VIEW,
        summary="Show a broker.",
        fields={"tab": f"what is returned: {', '.join(TABS)}"},
    ),
    Route(
        "/c/{cluster}/brokers/{broker}/config",
        change_option,
        Need.ADMIN,
        ("GET", "POST"),
        summary="Change an option of a broker.",
        form=CONFIG_FIELDS,
    ),
    Route(
        "/c/{cluster}/brokers/{broker}/permission",
        change_permission,
        Need.ADMIN,
        ("GET", "POST"),
        summary="Have producers leave a broker, or come back.",
        form=PERMISSION_FIELDS,
    ),
)
