"""Watching all clusters of a console: samplers, history, alarms and their delivery, as one object."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from eruca._console.clusters import Cluster
from eruca._console.state import State
from eruca._console.watching.alarms import Alarm, Alarms, Event, Store, Tell
from eruca._console.watching.alarmtables import AlarmTables
from eruca._console.watching.channels import Channel, make_report
from eruca._console.watching.delivery import Deliveries
from eruca._console.watching.history import History
from eruca._console.watching.options import WatchingOptions
from eruca._console.watching.rules import Rule, RuleKind, list_complete, list_facts
from eruca._console.watching.samples import Sample
from eruca._console.watching.sampling import Sampler
from eruca._ground.repeating import Repeating

log = logging.getLogger(__name__)

_PRUNE_S: Final = 300.0
# While there is more to delete.
_PRUNE_AGAIN_S: Final = 5.0


class Watching:
    """Looks at clusters, remembers what it saw, and raises alarms."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        state: State,
        options: WatchingOptions,
        *,
        url: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`url` is the address of the console, for links in alarms. Raises ConfigError."""
        self._url = url
        self.history = History(state)
        self.tables = AlarmTables(state)
        self.deliveries = Deliveries(state, self.tables, options)
        self._now = now
        self._alarms = Alarms()
        # Looks at several clusters, changes of rules and acknowledgements take turns.
        self._turn = asyncio.Lock()
        interval_s = options.interval_ms / 1000
        self._samplers = {
            each.name: Sampler(each.name, each.admin, self.take, interval_s=interval_s) for each in clusters
        }
        self._pruning = Repeating("deleting old history", self._prune, lambda: _PRUNE_S)

    async def start(self) -> None:
        """Load the alarms that are open, and start looking."""
        opened, next_id = await self.tables.load_open()
        self._alarms = Alarms(opened, next_id)
        self.deliveries.start()
        self._pruning.start()
        for sampler in self._samplers.values():
            sampler.start()

    async def stop(self) -> None:
        """Stop looking and delivering."""
        for sampler in self._samplers.values():
            await sampler.stop()
        await self._pruning.stop()
        await self.deliveries.stop()

    # -- what pages read ---------------------------------------------------------------------------------------------

    def find_last(self, cluster: str) -> Sample | None:
        """Return the last look at a cluster; None before the first."""
        sampler = self._samplers.get(cluster)
        return None if sampler is None else sampler.last

    def list_open(self, cluster: str) -> list[Alarm]:
        """Return the alarms of a cluster that fire or were acknowledged, the newest first."""
        return [alarm for alarm in self._alarms.open if alarm.cluster == cluster]

    def list_pending(self, cluster: str) -> list[Alarm]:
        """Return the alarms of a cluster whose duration has not passed yet."""
        return [alarm for alarm in self._alarms.pending if alarm.cluster == cluster]

    def look_again(self, cluster: str) -> None:
        """Look at a cluster now, because something was changed."""
        if cluster in self._samplers:
            self._samplers[cluster].look_again()

    # -- what pages change -------------------------------------------------------------------------------------------

    async def acknowledge(self, alarm_id: int, who: str, note: str = "") -> Alarm | None:
        """Note that somebody takes care of an alarm, and tell the channels; None if it is not firing."""
        async with self._turn:
            alarm = self._alarms.acknowledge(alarm_id, who, note, self._now())
            if alarm is None:
                return None
            await self.tables.store([alarm])
            rules = {rule.id: rule for rule in await self.tables.list_rules()}
        if alarm.rule in rules:
            await self._tell(Tell(Event.ACKNOWLEDGED, rules[alarm.rule], (alarm,)))
        return alarm

    async def test(self, channel: Channel) -> None:
        """Deliver a test to a channel now. Raises ErucaError."""
        rule = Rule(id=0, name="test", kind=RuleKind.LAG, threshold=1)
        report = make_report(Event.TEST, rule, (), self._now(), self._url)
        await self.deliveries.send(channel, report, 0)

    # -- looks -------------------------------------------------------------------------------------------------------

    async def take(self, sample: Sample) -> None:
        """Store a look, and carry out what the rules decide."""
        await self.history.add(sample)
        async with self._turn:
            rules = await self.tables.list_rules()
            actions = self._alarms.handle(sample.cluster, rules, list_facts(sample), list_complete(sample), sample.at)
            changed = [action.alarm for action in actions if isinstance(action, Store)]
            if changed:
                await self.tables.store(changed)
        for action in actions:
            if isinstance(action, Tell):
                await self._tell(action)

    async def _tell(self, action: Tell) -> None:
        log.info("alarm %s: %s, %d targets", action.event.value, action.rule.name, len(action.alarms))
        report = make_report(action.event, action.rule, action.alarms, self._now(), self._url)
        await self.deliveries.add(action.rule.channels, report)

    async def _prune(self) -> float | None:
        deleted = await self.history.prune(self._now())
        return _PRUNE_AGAIN_S if deleted else None
