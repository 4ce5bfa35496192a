"""Every command of mqadmin: Java's tool on Java and on Eruca, and `eruca admin` on both, show the same facts.

Both systems get the same topics, groups, messages and offsets from `MqAdmin.java`, which also runs Java's commands: all
in one process, because a process for each would cost seconds. `eruca admin` runs in the process of the test. Every
field of the four answers must be the same, except for those that a case lists with the reason (`mqadmincases.py`), and
what `mqadmin.VOLATILE` lists for all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eruca._cli.mqadmin.commandline import Command
from eruca._cli.mqadmin.table import COMMANDS
from tests.figures import note_figures
from tests.interop.brokers import SETTINGS, ErucaCluster, JavaCluster
from tests.interop.guarded import WHO, GuardedEruca, GuardedJava, read_accounts_file, write_tools
from tests.interop.javapeer import JavaProgram, Peer
from tests.interop.mqadmin import TOOLS, Ask, Side, find_differences
from tests.interop.mqadmincases import ACCOUNT_CASES, CASES, LAST_CASES, SLICE
from tests.needs import starts

# As `JavaBroker` has it; and the trace has a topic.
SYSTEM_SETTINGS = {"fileReservedTime": 999_999, "diskMaxUsedSpaceRatio": 95, "traceTopicEnable": "true"}
Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def program(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    """Java's mqadmin."""
    with JavaProgram(peer, "eruca.interop.MqAdmin", tmp_path_factory.mktemp("mqadmin")) as program:
        yield program


@pytest.fixture(scope="module")
def sides(program: JavaProgram, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Eruca and Java with the same content."""
    home = tmp_path_factory.mktemp("systems")
    settings = {**SETTINGS, **SYSTEM_SETTINGS}
    with JavaCluster(peer, home / "java", settings) as java, ErucaCluster(home / "eruca", settings) as eruca:
        both = Side(program, eruca, home / "eruca"), Side(program, java, home / "java")
        for side in both:
            side.build()
        yield both


@pytest.fixture(scope="module")
@starts("java")
def guarded(program: JavaProgram, peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Eruca and Java with the same accounts."""
    home = tmp_path_factory.mktemp("guarded-systems")
    admin = WHO["admin"]
    assert admin is not None
    tools = write_tools(home / "tools.yml", admin)
    with GuardedEruca(home / "eruca") as eruca, GuardedJava(peer, home / "java") as java:
        yield (
            Side(program, eruca, home / "eruca", tools_file=tools, accounts=str(eruca.accounts)),
            Side(program, java, home / "java", tools_file=tools, accounts=str(java.accounts)),
        )


@pytest.fixture(autouse=True)
def _leave_files_here(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """consumerStatus writes files where it is called."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.mark.parametrize("name", [name for name in CASES if name in SLICE])
def test_command(sides: Sides, name: str) -> None:
    differences = find_differences(sides, CASES[name], name)
    assert not differences, differences


@pytest.mark.whole
@pytest.mark.parametrize("name", [name for name in CASES if name not in SLICE])
def test_other_command(sides: Sides, name: str) -> None:
    differences = find_differences(sides, CASES[name], name)
    assert not differences, differences


@pytest.mark.whole
@pytest.mark.parametrize("name", ACCOUNT_CASES)
def test_account_command(guarded: Sides, name: str) -> None:
    differences = find_differences(guarded, ACCOUNT_CASES[name], name)
    assert not differences, differences


@pytest.mark.whole
def test_accounts_are_the_same_whichever_tool_made_them(guarded: Sides) -> None:
    for line in (
        "updateAclConfig -b {broker} -a kept{by} -s secret-of-it -i DENY -u SUB -t orders=PUB,other=PUB|SUB",
        "updateAclConfig -b {broker} -a kept{by} -s secret-of-it -m true -g billing=SUB -w 10.1.1.1",
    ):
        found = [read_accounts_file(side.accounts)["accounts"] for side in guarded if run_both(side, line)]
        made = [accounts[f"kept{tool}"] for accounts in found for tool in TOOLS]
        assert made == [made[0]] * 4, line
        assert made[0]["secretKey"] == "secret-of-it"


def run_both(side: Side, line: str) -> bool:
    """Run a command with both tools; whether both succeeded."""
    return not any(side.answer(Ask(line), tool).failed for tool in TOOLS)


@pytest.mark.whole
@pytest.mark.parametrize("name", LAST_CASES)
def test_last_command(sides: Sides, name: str) -> None:
    for side in sides if name == "queryMsgTraceById" else ():
        side.build("trace")
    differences = find_differences(sides, LAST_CASES[name], name)
    assert not differences, differences


def test_every_command_is_compared() -> None:
    cases = CASES | ACCOUNT_CASES | LAST_CASES
    assert cases.keys() == COMMANDS.keys()
    assert len(COMMANDS) == 57
    for name, asks in cases.items():
        assert any(ask.command.lower() == name.lower() and not ask.setup for ask in asks), name
    compared = [ask for asks in cases.values() for ask in asks if not ask.setup]
    note_figures(
        f"mqadmin: {len(cases)} commands, {len(compared)} command lines, each answered by two tools on two systems;"
        f" {sum(bool(ask.refused or ask.own_words) for ask in compared)} are refused or worded differently on purpose"
    )


def test_our_flags_are_those_of_java(program: JavaProgram) -> None:
    told = {row["name"]: row for row in program.ask({"do": "describe"})}
    assert told.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        assert (told[name]["alias"] or "") == command.alias
        java = {
            flag["letter"]: (flag["long"].strip(), flag["value"], flag["required"], flag["oneOf"])
            for flag in told[name]["flags"]
            if flag["letter"] not in _COMMON
        }
        assert list_flags(command) == java, name


_COMMON = ("h", "n")


def list_flags(command: Command) -> dict[str, tuple[str, bool, bool, bool]]:
    """Our flags as Java describes its own; the list of brokers and name servers is common to all."""
    return {flag.letter: (flag.name, flag.value, flag.required, flag.one_of) for flag in command.flags if not flag.ours}
