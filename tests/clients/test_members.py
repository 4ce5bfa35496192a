"""A group of Java members at our broker: the ground on which mixed groups are tested.

It shows that members, feed and history work, and that they find nothing to complain of where no client of ours takes
part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.churn import Churn
from tests.clients.churnruns import LOCK_LIVE_MS, PATIENT_SECONDS, QUEUES, QUIET_SHARE, WINDOW_SECONDS
from tests.clients.history import History
from tests.clients.members import JavaFeed, JavaMember, Member, MemberSettings, poll, wait_for_owners
from tests.figures import note_figures
from tests.interop.brokers import SETTINGS, ErucaCluster
from tests.interop.javapeer import Peer, prepare_peer
from tests.needs import starts
from tests.patience import PATIENCE_S

REST_SECONDS_MAX = PATIENCE_S
ARRIVE_SECONDS_MAX = PATIENCE_S
PER_SECOND = 400
BETWEEN_CHANGES = 640
CHANGES = 20
CRASHES_MIN = 4
SEED = 20_260_115


@pytest.fixture(scope="module")
@starts("java")
def peer() -> Peer:
    return prepare_peer()


@pytest.fixture(scope="module")
def eruca(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ErucaCluster]:
    settings = {**SETTINGS, "rebalanceLockMaxLiveTime": LOCK_LIVE_MS}
    with ErucaCluster(tmp_path_factory.mktemp("cluster"), settings) as cluster:
        yield cluster
        assert cluster.list_complaints() == []


@pytest.mark.parametrize("order", ["concurrent", "ordered"])
def test_java_members_share_queues_and_heal(order: str, peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    topic = f"members-{order}"
    settings = MemberSettings(eruca.name_server, f"group-{order}", topic, ordered=order == "ordered", work_ms=2)
    history = History(commit_seconds=PATIENT_SECONDS, catch_up_seconds=PATIENT_SECONDS)
    with ExitStack() as stack:
        feed = stack.enter_context(JavaFeed(peer, tmp_path / "feed", eruca))
        queues = feed.create_topic(topic, QUEUES)
        members: dict[str, JavaMember] = {}

        def join(name: str) -> None:
            members[name] = stack.enter_context(JavaMember(peer, tmp_path, name, settings))
            history.add(members[name])

        def rest() -> dict[str, int]:
            """Wait until the group is at rest; enters it as settled and returns how many queues each member has."""
            owners = wait_for_owners(list(members.values()), queues, REST_SECONDS_MAX)
            change.settle(owners)
            assert all(member.queues() == {q for q in queues if owners[q] == name} for name, member in members.items())
            return {name: list(owners.values()).count(name) for name in members}

        with history.change("three join") as change:
            for name in ("j1", "j2", "j3"):
                join(name)
            assert rest() == {"j1": 3, "j2": 3, "j3": 2}
        feed.start(topic, QUEUES, keys=24, per_second=PER_SECOND)
        history.wait_for_more(100, ARRIVE_SECONDS_MAX)
        # Each has had some, also one whose process took its time to begin.
        assert any(all(member.consumed() for member in members.values()) for _ in poll(ARRIVE_SECONDS_MAX))
        with history.change("j2 is killed") as change:
            members.pop("j2").kill()
            assert rest() == {"j1": 4, "j3": 4}
        history.wait_for_more(100, ARRIVE_SECONDS_MAX)
        with history.change("j1 leaves") as change:
            members.pop("j1").stop()
            assert rest() == {"j3": 8}
        sent = feed.finish()
        history.wait_until_consumed(sent, ARRIVE_SECONDS_MAX)
        history.check(sent)
        if settings.ordered:
            history.check_order()
        assert {delivery.member for delivery in history.gather()} == {"j1", "j2", "j3"}


@pytest.mark.whole
@pytest.mark.parametrize("order", ["concurrent", "ordered"])
@pytest.mark.parametrize("strategy", ["average", "circle", "consistent-hash"])
def test_java_members_come_and_go(strategy: str, order: str, peer: Peer, eruca: ErucaCluster, tmp_path: Path) -> None:
    topic = f"churn-{strategy}-{order}"
    settings = MemberSettings(
        eruca.name_server, f"group-{topic}", topic, strategy, ordered=order == "ordered", work_ms=2
    )
    history = History(commit_seconds=WINDOW_SECONDS, catch_up_seconds=WINDOW_SECONDS)

    def start(name: str) -> Member:
        return JavaMember(peer, tmp_path, name, settings)

    with JavaFeed(peer, tmp_path / "feed", eruca) as feed:
        queues = feed.create_topic(topic, QUEUES)
        with Churn([("java", start)] * 4, queues, history, SEED) as churn:
            churn.fill()
            feed.start(topic, QUEUES, keys=24, per_second=PER_SECOND)
            for _ in range(CHANGES):
                history.wait_for_more(BETWEEN_CHANGES, ARRIVE_SECONDS_MAX)
                churn.change()
            history.wait_for_quiet(QUIET_SHARE, ARRIVE_SECONDS_MAX)
            sent = feed.finish()
            history.wait_until_consumed(sent, ARRIVE_SECONDS_MAX)
            repeated = history.check(sent)
            if settings.ordered:
                history.check_order()
            quiet = history.count_quiet()
    counts = f"{len(sent)} sent, {quiet} far from any change, repeated {dict(repeated)}"
    note_figures(f"{topic}: seed {SEED}, {dict(churn.kinds)}, {counts}")
    assert churn.kinds["java crashes"] >= CRASHES_MIN
    assert quiet > len(sent) / 10
