"""updateAclConfig, deleteAclConfig, updateGlobalWhiteAddr, clusterAclConfigVersion; getAclConfig is refused."""

from __future__ import annotations

from eruca._cli.mqadmin.call import Call
from eruca._cli.mqadmin.javatext import show_time
from eruca.errors import ConfigError


async def update_acl_config(call: Call) -> None:
    """Create an account, or change it, on a broker or on all brokers of a cluster."""
    line = call.line
    key, secret = line.text("a"), line.text("s")
    topics, groups = _read_permissions(call, "t"), _read_permissions(call, "g")
    async for row, _ in call.change_each(
        await call.list_brokers(),
        lambda row: call.admin.accounts.put(
            key,
            secret,
            admin=line.is_true("m"),
            white_addresses=line.find("w"),
            default_topic=line.find("i"),
            default_group=line.find("u"),
            topics=topics,
            groups=groups,
            brokers=[row.address],
        ),
    ):
        call.out.say("create or update plain access config to %s success.", row.address)
    # Java prints the object with its secret, or its address in memory.
    call.out.say("account's accesskey is:%s", key)


def _read_permissions(call: Call, flag: str) -> dict[str, str] | None:
    """Read `topicA=DENY,topicB=PUB|SUB`. Raises ConfigError."""
    if not call.line.has(flag):
        return None
    found: dict[str, str] = {}
    for part in call.line.text(flag).split(","):
        name, equals, permission = part.partition("=")
        if not (name and equals and permission):
            raise ConfigError(f"-{flag}: {part!r} is not name=permission", hint=f"for example -{flag} orders=PUB|SUB")
        found[name.strip()] = permission.strip()
    return found


async def delete_acl_config(call: Call) -> None:
    """Delete an account on a broker or on all brokers of a cluster."""
    key = call.line.text("a")
    async for row, _ in call.change_each(
        await call.list_brokers(), lambda row: call.admin.accounts.delete(key, brokers=[row.address])
    ):
        call.out.say("delete plain access config account from %s success.", row.address)
    call.out.say("account's accesskey is:%s", key)


async def update_global_white_addr(call: Call) -> None:
    """Replace the addresses that need no account."""
    addresses = [part.strip() for part in call.line.text("g").split(",") if part.strip()]
    file = call.line.find("p")
    async for row, _ in call.change_each(
        await call.list_brokers(),
        lambda row: call.admin.accounts.set_white_addresses(addresses, file=file, brokers=[row.address]),
    ):
        call.out.say("update global white remote addresses to %s success.", row.address)


async def cluster_acl_config_version(call: Call) -> None:
    """Show how new the account files of a broker are, or those of the masters of a cluster."""
    form = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
    if call.line.has("c"):
        heads = (
            "Cluster Name",
            "Broker Name",
            "Broker Addr",
            "AclFilePath",
            "AclConfigVersionNum",
            "AclLastUpdateTime",
        )
        call.out.table(form, *heads)
    for row in await call.list_masters():
        for found in call.take(await call.admin.accounts.versions(broker=row.address)):
            changed = show_time(found.changed_at)
            call.out.say(form, found.cluster, found.broker, found.address, found.file, found.counter, changed)
    what = "cluster" if call.line.has("c") else "broker"
    call.out.say("get %s's plain access config version success.", what)


async def get_acl_config(call: Call) -> None:
    """Refuse: Java's answer has the secrets of all accounts."""
    raise ConfigError(
        "getAclConfig shows the secrets of all accounts, so it is refused",
        hint="eruca acl list shows the accounts without their secrets",
    )
