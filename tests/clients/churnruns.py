"""One run of a group that members join, leave and crash out of while a feed sends, and what it showed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.churn import Churn, Start
from tests.clients.history import History
from tests.clients.members import JavaFeed, JavaMember, MemberSettings
from tests.clients.pythonmember import PythonMember
from tests.figures import note_figures
from tests.interop.brokers import BROKER_NAME, Cluster
from tests.interop.javapeer import Peer
from tests.patience import PATIENCE_S

QUEUES = 8
# A killed member leaves its locks behind for this long; its client relies on them for half of it.
LOCK_LIVE_MS = 4000
ARRIVE_SECONDS_MAX = PATIENCE_S
# Members commit every 200 ms and a handler works for some ms; the rest is for a busy machine. Between two changes of a
# long run the group works longer than that, so that there are times in which nothing may be repeated.
WINDOW_SECONDS = 1.0
# How much of a run is far from any change, so that it means something that nothing is repeated there.
QUIET_SHARE = 1 / 8
# For runs whose changes follow each other more closely anyway.
PATIENT_SECONDS = 5.0
# Two of each language; `python` has coroutines for handlers, `plain` functions that run in threads.
MIXED = ("java", "java", "python", "plain")


@dataclass(frozen=True, kw_only=True)
class ChurnRun:
    """What happens in a run."""

    seed: int
    places: Sequence[str] = MIXED
    # How many there are; those that the last message would come before are left out.
    changes: int = 20
    # Deliveries between two changes.
    between: int = 640
    per_second: int = 400
    keys: int = 24
    # Messages in all; 0 sends until the last change is over.
    count: int = 0
    # Within which a change explains that a message comes again.
    window_s: float = WINDOW_SECONDS

    def has_more(self, done: int, history: History) -> bool:
        """Is another change to be made, after this many?"""
        delivered = len({delivery.body for delivery in history.gather()}) if self.count else 0
        return done < self.changes and (not self.count or delivered + self.between < self.count)


@dataclass(frozen=True)
class ChurnResult:
    """What a run showed. That nothing was lost, repeated without a reason or out of order, is asserted in the run."""

    sent: int
    kinds: Counter[str]
    repeated: Counter[str]
    quiet: int

    @property
    def crashes(self) -> int:
        """How many members were killed."""
        return sum(count for kind, count in self.kinds.items() if kind.endswith(" crashes"))


def run_churn(
    run: ChurnRun,
    peer: Peer,
    cluster: Cluster,
    home: Path,
    settings: MemberSettings,
    broker_name: str = BROKER_NAME,
) -> ChurnResult:
    """Have a group go through a run, and assert what must hold after each change and in the end."""
    history = History(commit_seconds=run.window_s, catch_up_seconds=run.window_s)
    starts: dict[str, Start] = {
        "java": lambda name: JavaMember(peer, home, name, settings),
        "python": lambda name: PythonMember(home, name, settings),
        "plain": lambda name: PythonMember(home, name, settings, plain=True),
    }
    with JavaFeed(peer, home / "feed", cluster, broker_name) as feed:
        queues = feed.create_topic(settings.topic, QUEUES)
        with Churn([(kind, starts[kind]) for kind in run.places], queues, history, run.seed) as churn:
            churn.fill()
            feed.start(settings.topic, QUEUES, keys=run.keys, per_second=run.per_second, count=run.count)
            while run.has_more(churn.kinds.total(), history):
                history.wait_for_more(run.between, ARRIVE_SECONDS_MAX, run.count)
                churn.change()
            if not run.count:
                history.wait_for_quiet(QUIET_SHARE, ARRIVE_SECONDS_MAX)
            sent = feed.finish(ARRIVE_SECONDS_MAX + 2 * run.count / run.per_second)
            history.wait_until_consumed(sent, ARRIVE_SECONDS_MAX)
            repeated = history.check(sent)
            if settings.ordered:
                history.check_order()
            if settings.exclusive:
                history.check_exclusive()
            result = ChurnResult(len(sent), churn.kinds, repeated, history.count_quiet())
    note_figures(
        f"{settings.topic}: seed {run.seed}, {result.sent} sent, 0 lost, {result.quiet} far from any change,"
        f" {result.kinds.total()} changes {dict(result.kinds)}, {repeated.total()} repeated {dict(repeated)}"
    )
    return result
