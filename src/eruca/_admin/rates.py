"""Counters of brokers: sums and rates over the last minute, hour and day."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eruca._admin.connection import Connection
from eruca._admin.results import Problem
from eruca._admin.targets import BrokerRow, gather_bounded, make_problem
from eruca._wire.bodies import BrokerStatsData
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.headers import StatsDataHeader
from eruca.errors import ErucaError, RequestRefused


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A counter of one broker: sums and rates over the last minute, hour and day."""

    broker: str
    # A counter of Java's, for example TOPIC_PUT_NUMS, and its key, for example the topic.
    name: str
    key: str
    minute_sum: int
    minute_rate: float
    # The mean of a single event, for example its bytes or milliseconds.
    minute_mean: float
    hour_sum: int
    hour_rate: float
    hour_mean: float
    day_sum: int
    day_rate: float
    day_mean: float


async def read_rates(
    connection: Connection, rows: Sequence[BrokerRow], names: Sequence[tuple[str, str]]
) -> tuple[list[Rate], list[Problem]]:
    """Return counters, each a name and a key, of some brokers; one that a broker does not have is left out."""

    async def ask(wanted: tuple[BrokerRow, str, str]) -> Rate | None:
        row, name, key = wanted
        header = StatsDataHeader(stats_name=name, stats_key=key)
        try:
            _, body = await connection.ask(row.address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except RequestRefused as error:
            if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
                return None
            raise
        return _describe(row.where, name, key, body) if isinstance(body, BrokerStatsData) else None

    wanted = [(row, name, key) for name, key in names for row in rows]
    found: list[Rate] = []
    problems: dict[str, Problem] = {}
    for (row, _, _), answer in zip(wanted, await gather_bounded(wanted, ask), strict=True):
        if isinstance(answer, ErucaError):
            problems.setdefault(row.where, make_problem(row, answer))
        elif answer is not None:
            found.append(answer)
    return found, list(problems.values())


def _describe(broker: str, name: str, key: str, body: BrokerStatsData) -> Rate:
    minute, hour, day = body.stats_minute, body.stats_hour, body.stats_day
    return Rate(
        broker=broker,
        name=name,
        key=key,
        minute_sum=minute.sum,
        minute_rate=minute.tps,
        minute_mean=minute.average,
        hour_sum=hour.sum,
        hour_rate=hour.tps,
        hour_mean=hour.average,
        day_sum=day.sum,
        day_rate=day.tps,
        day_mean=day.average,
    )
