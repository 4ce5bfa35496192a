"""Which offsets a group gets, and from whose progress."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from eruca import Tls
from eruca._spark.cluster import Access
from eruca._spark.offsets import Offsets, encode_offsets
from eruca._spark.source import groupcommits
from eruca._spark.source.groupcommits import GroupCommits, ProgressCommits, describe_group
from eruca._wire.bodies import MessageQueue
from eruca.errors import ConnectFailed

Q0, Q1 = (MessageQueue("broker-a", number, "orders") for number in range(2))
ACCESS = Access("127.0.0.1:1")


class FakeCluster:
    """Has the offsets of one group."""

    made: ClassVar[list[FakeCluster]] = []

    def __init__(self, access: Access) -> None:
        self.access = access
        self.group: dict[MessageQueue, int | None] = {}
        self.ends: Offsets = {Q0: 100, Q1: 100}
        self.writes: list[Offsets] = []
        self.fails = False
        self.made.append(self)

    def find_route(self, topic: str) -> object:
        return object()

    def read_group(self, group: str, queues: Collection[MessageQueue]) -> dict[MessageQueue, int | None]:
        if self.fails:
            raise ConnectFailed("nobody there")
        return {queue: self.group.get(queue) for queue in queues}

    def find_ends(self, queues: Collection[MessageQueue]) -> Offsets:
        return {queue: self.ends[queue] for queue in queues}

    def commit_group(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.group |= offsets
        self.writes.append(dict(offsets))

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[FakeCluster]:
    """The clusters that were made."""
    FakeCluster.made = []
    monkeypatch.setattr(groupcommits, "Cluster", FakeCluster)
    return FakeCluster.made


def test_a_group_only_goes_on(clusters: list[FakeCluster]) -> None:
    commits = GroupCommits(ACCESS)
    clusters[0].group = {Q0: 50, Q1: 5}
    assert commits.commit("billing", {Q0: 20, Q1: 20}) == {Q1: 20}
    assert clusters[0].group == {Q0: 50, Q1: 20}
    assert commits.commit("billing", {Q0: 60, Q1: 20}) == {Q0: 60}
    assert commits.commit("billing", {Q0: 60, Q1: 20}) == {}
    assert len(clusters[0].writes) == 2


def test_a_group_behind_the_end_of_a_queue_goes_back_to_it(clusters: list[FakeCluster]) -> None:
    commits = GroupCommits(ACCESS)
    clusters[0].group, clusters[0].ends = {Q0: 50}, {Q0: 7, Q1: 0}
    assert commits.commit("billing", {Q0: 5}) == {Q0: 5}


def test_a_commit_that_failed_is_made_good(clusters: list[FakeCluster]) -> None:
    commits = GroupCommits(ACCESS)
    clusters[0].fails = True
    with pytest.raises(ConnectFailed):
        commits.commit("billing", {Q0: 5})
    clusters[0].fails = False
    assert commits.commit("billing", {Q0: 5}) == {Q0: 5}


def make_progress(*ends: str | None) -> Any:
    """An event as Spark has them."""
    return SimpleNamespace(progress=SimpleNamespace(sources=[SimpleNamespace(endOffset=end) for end in ends]))


def test_a_listener_commits_what_is_ours_and_wants_it(clusters: list[FakeCluster]) -> None:
    listener = ProgressCommits()
    ours = json.dumps(encode_offsets({Q0: 9}, **describe_group("billing", ACCESS)))
    plain = json.dumps(encode_offsets({Q1: 9}))
    listener.onQueryProgress(make_progress(None, "17", '{"orders": {"0": 4}}', "no json", plain, ours))
    assert [cluster.writes for cluster in clusters] == [[{Q0: 9}]]
    elsewhere = Access("127.0.0.1:2", access_file="/keys.json", tls=Tls(ca="/ca.pem", verify=False))
    listener.onQueryProgress(make_progress(json.dumps(encode_offsets({Q0: 9}, **describe_group("g", elsewhere)))))
    assert clusters[1].access.access_file == "/keys.json"
    assert clusters[1].access.tls == elsewhere.tls
    listener.close()


def test_a_listener_that_cannot_commit_says_so_and_goes_on(
    clusters: list[FakeCluster], caplog: pytest.LogCaptureFixture
) -> None:
    listener = ProgressCommits()
    event = make_progress(json.dumps(encode_offsets({Q0: 9}, **describe_group("billing", ACCESS))))
    listener.onQueryProgress(event)
    clusters[0].fails = True
    listener.onQueryProgress(make_progress(json.dumps(encode_offsets({Q0: 10}, **describe_group("billing", ACCESS)))))
    assert "could not be committed" in caplog.text


def test_the_end_of_a_query_can_be_waited_for() -> None:
    listener = ProgressCommits()
    query: Any = SimpleNamespace(runId="run-1")
    ended: Any = SimpleNamespace(runId="run-1")
    assert not listener.wait_for_end(query, 0.0)
    listener.onQueryTerminated(ended)
    assert listener.wait_for_end(query, 0.0)


def test_offsets_say_nothing_of_groups_when_there_is_none() -> None:
    assert describe_group("", ACCESS) == {}
