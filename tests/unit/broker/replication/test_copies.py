"""What failover knows of a broker: the real epoch of its log, and a bound of what may be acknowledged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from eruca._broker.options import BrokerOptions, BrokerRole, LiveOptions
from eruca._broker.replication.copies import BrokerCopies, LogEnd
from eruca._broker.replication.members import KnownMembers, MembersTable
from eruca._broker.standing import Standing
from eruca._core.replication.epochs import Epoch
from eruca._core.replication.synced import EVERYTHING, SyncCondition


def make_copies(tail: int = 1000, **options: Any) -> tuple[BrokerCopies, Any]:
    """A broker that is only as much as is asked for."""
    given = BrokerOptions(**{"role": BrokerRole.SYNC_MASTER, **options})
    broker = SimpleNamespace(
        options=LiveOptions(given),
        standing=Standing(given),
        store=SimpleNamespace(
            log=SimpleNamespace(readable_end=tail),
            lineage=SimpleNamespace(epochs=[], seen_epoch=0, store_id=""),
        ),
        replication=SimpleNamespace(
            condition=SyncCondition(2, 1 << 30),
            release=lambda: None,
            reads=SimpleNamespace(is_bounding=False, certain=0),
        ),
        server=SimpleNamespace(links=[]),
    )
    members = KnownMembers(broker.options, broker.standing, MembersTable(), lambda: 0)
    copies = BrokerCopies(broker.options, broker.standing, broker.store, broker.replication, broker.server, members)
    return copies, broker


def make_link(member: int | None, confirmed: int, *, is_joined: bool = True) -> SimpleNamespace:
    return SimpleNamespace(member=member, is_joined=is_joined, machine=SimpleNamespace(confirmed=confirmed))


def test_epochs_that_are_not_copied_yet_do_not_count() -> None:
    copies, broker = make_copies(tail=1000)
    broker.store.lineage = SimpleNamespace(
        epochs=[Epoch(3, 0), Epoch(4, 1000), Epoch(7, 1001)], seen_epoch=9, store_id="ours"
    )
    known = frozenset({broker.standing.address})
    assert copies.find_log_end() == LogEnd(1000, 4, 9, known, "ours")
    copies.meet(["10.0.0.9:10911"])
    known |= {"10.0.0.9:10911"}
    broker.store.lineage = SimpleNamespace(epochs=[], seen_epoch=0, store_id="")
    assert copies.find_log_end() == LogEnd(1000, 0, 0, known)


def test_only_members_with_a_link_are_counted() -> None:
    copies, broker = make_copies()
    broker.server.links = [make_link(1, 900), make_link(None, 950), make_link(2, -1), make_link(3, 5, is_joined=False)]
    progress = copies.measure()
    assert progress.reports == {1: 900}
    assert (progress.tail, progress.required) == (1000, 2)


def test_confirmed_is_a_bound_of_what_was_acknowledged() -> None:
    copies, broker = make_copies(in_sync_replicas=1)
    assert copies.measure().confirmed == 1000
    # Until a moment ago one copy was enough.
    broker.store.log.readable_end = 2000
    broker.options.change(in_sync_replicas=2)
    assert copies.measure().confirmed == 2000
    broker.store.log.readable_end = 3000
    assert copies.measure().confirmed == 2000
    condition = broker.replication.condition
    condition.add("link", 1)
    condition.report("link", 2500)
    assert copies.measure().confirmed == 2500


def test_what_readers_saw_must_not_be_taken_back_either() -> None:
    copies, broker = make_copies(tail=100)
    copies.measure()
    broker.store.log.readable_end = 1000
    broker.replication.reads = reads = SimpleNamespace(is_bounding=True, certain=400)
    assert copies.measure().confirmed == 400
    # Alone in the set, a master shows everything; a member that joins after that needs all of it.
    reads.certain = EVERYTHING
    assert copies.measure().confirmed == 1000
    reads.certain, broker.store.log.readable_end = 400, 2000
    assert copies.measure().confirmed == 1000


def test_asynchronous_master_needs_one_copy() -> None:
    copies, _ = make_copies(role=BrokerRole.ASYNC_MASTER)
    progress = copies.measure()
    assert (progress.required, progress.confirmed) == (1, 1000)


def test_slave_outside_the_set_is_no_reason_to_wait() -> None:
    copies, broker = make_copies()
    condition = broker.replication.condition
    condition.add("link", 1)
    condition.report("link", 1000)
    assert condition.is_available(1000)
    copies.require(frozenset())
    assert not condition.is_available(1000)
    copies.require(frozenset({1}))
    assert condition.is_available(1000)
