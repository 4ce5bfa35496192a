"""What mqadmin does on name servers: configuration, write permission of brokers, keys and values, order of topics."""

from __future__ import annotations

from eruca._admin.results import Changed
from eruca._cli.mqadmin.call import Call
from eruca._cli.mqadmin.commandline import usage_error
from eruca.errors import NoRoute


async def get_config(call: Call) -> None:
    """Show the configuration of each name server."""
    for config in call.take(await call.admin.nameservers.config()):
        call.out.say("============%s============", config.address)
        for key, value in config.options.items():
            call.out.say("%-50s=  %s", key, value)


async def update_config(call: Call) -> None:
    """Change an option of all name servers."""
    key, value = call.line.text("k"), call.line.text("v")
    if not call.check(await call.admin.nameservers.set_config({key: value})).failed:
        servers = call.line.text("n").split(";") if call.line.has("n") else []
        where = f"[{', '.join(servers)}]" if servers else ""
        call.out.say("update name server config success!%s\n%s : %s", where, key, value)


# --- the write permission of a broker -------------------------------------------------------------------------------


async def wipe_write_perm(call: Call) -> None:
    """Have the name servers report a broker as read-only."""
    _show_permission(call, "wipe", await call.admin.brokers.wipe_write_permission(call.line.text("b")))


async def add_write_perm(call: Call) -> None:
    """Undo wipeWritePerm."""
    _show_permission(call, "add", await call.admin.brokers.add_write_permission(call.line.text("b")))


def _show_permission(call: Call, verb: str, changed: Changed[int]) -> None:
    broker = call.line.text("b")
    for change in changed.changes:
        where = f"{verb} write perm of broker[{broker}] in name server[{change.where}]"
        if change.outcome == "failed":
            call.out.say("%s Failed", where)
        else:
            # How many topics it could be written to before, or can be again.
            call.out.say("%s OK, %d", where, max(change.before or 0, change.after or 0))
    call.check(changed)


# --- keys and values ------------------------------------------------------------------------------------------------


async def update_kv_config(call: Call) -> None:
    """Set a value on all name servers."""
    line = call.line
    if not call.check(await call.admin.nameservers.kv_put(line.text("s"), line.text("k"), line.text("v"))).failed:
        call.out.say("create or update kv config to namespace success.")


async def delete_kv_config(call: Call) -> None:
    """Delete a value on all name servers."""
    if not call.check(await call.admin.nameservers.kv_delete(call.line.text("s"), call.line.text("k"))).failed:
        call.out.say("delete kv config from namespace success.")


async def update_order_conf(call: Call) -> None:
    """Show, set or delete the order configuration of a topic."""
    topic, method, nameservers = call.line.text("t"), call.line.text("m"), call.admin.nameservers
    if method == "get":
        order = (await nameservers.order_get(topic)).value
        if order is None:
            raise NoRoute(f"topic {topic} has no order configuration", hint="-m put -v broker-a:4 sets one")
        call.out.say("get orderConf success. topic=[%s], orderConf=[%s] ", topic, order)
    elif method == "put":
        order = call.line.text("v")
        if not order:
            raise usage_error(call.line.command, "please set orderConf with option -v.")
        if not call.check(await nameservers.order_put(topic, order)).failed:
            call.out.say("update orderConf success. topic=[%s], orderConf=[%s]", topic, order)
    elif method == "delete":
        if not call.check(await nameservers.order_delete(topic)).failed:
            call.out.say("delete orderConf success. topic=[%s]", topic)
    else:
        raise usage_error(call.line.command, f"-m {method} is not put, get or delete")
