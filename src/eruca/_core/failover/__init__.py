"""Choosing the master among the members of a broker name: one machine in each member, etcd between them; no I/O.

`view` defines what etcd holds and the machine's events and actions, `insync` maintains the set of members that have
everything that was acknowledged, `ballot` evaluates an election, `machine` decides.

A master acknowledges while its lease is valid by its own clock: until the moment it sent the last answered keepalive,
plus the seconds etcd granted, minus a margin for clock drift. etcd cannot let another member become master earlier.
Alone, this would depend on clocks (and the monotonic clock of a suspended machine stands still), so acknowledgements
of sync replication depend on two more conditions that do not. They need every member of the in-sync set, and the set
shrinks only by a transaction that proves the mastership. And a member stops following and reporting (DETACHING) before
it takes part in an election, so an old master gets nothing confirmed by members that are electing a new one.

An election begins when the master's key is gone. Each member of the in-sync set stops following, then publishes the
end of its log, tagged with the revision of `state`, which identifies this election. When all living members have done
so (or after `election_s`), the one with the latest epoch claims; ties are broken by the most data, then by the lowest
id. Positions alone are not enough: the longer log may be the tail that an earlier master never got confirmed, and
readers have seen the later epoch. If it does not claim, the others do, each after `takeover_s` for every member ranked
before it. The claim is one transaction: no master, `state` and the keys of the set's members unchanged. So it fails,
and is reconsidered, when a member publishes more data just before it. The set of the new epoch is the old one without
members that have no living key, unless that leaves fewer than an acknowledgement needs.

When all members that publish have seen no master since their start, they wait `cold_s` for the others, because after a
power failure the first one to start may not have the most data. A member whose log has no epoch at all, although it is
in the set, has lost its disk and is not a candidate. Members outside the set wait, and log that; an operator may force
them (`Forced`). At the very first start there is no `state`, and no member has a log: the member configured as the
master creates it.

etcd may lose everything, at any time. Then there is no `state`, but there are logs, and every member remembers all
members it ever met, which it publishes with its log. A master had everything acknowledged in its epoch. So when all
members that any of them ever met are present and have stopped following (they publish for the round FOUNDING), the one
with the latest epoch, and in it the most data, has everything, and creates the state again; unless some member has
heard of an epoch that is in no log. As long as one is missing, the state is not created: the missing one may have been
the last master. An old master that has not noticed that etcd lost its data counts as missing until it has stopped. An
etcd restored from a backup has an outdated state; members that saw its revision go back treat that state as damaged.

Unknown outcomes are not guessed. A call without an answer is repeated with the same comparisons, so it cannot happen
twice, and the view shows whether it already happened. A lease is returned, or known to have expired, before another
is requested: a late claim cannot succeed on a lease that has been forgotten. A fenced master that reaches etcd again
returns its lease and takes part in elections like every other member. When etcd is unreachable for all, the master
fences itself when its lease expires, and slaves keep serving reads; writes resume when etcd is back.

A value damaged on its way to etcd is present but unreadable. A claim that succeeded this way is repeated over its own
keys, and the member leads once it has read back what it wrote. A damaged set is written again by the master, which
requires both the old and the new one in the meantime; if it dies before that, members that saw the previous set, and
missed no change, use that. A damaged member key is written again by its member. So only a damaged `state` that no
member of the set remembers needs an operator.

Messages that do not wait for replication (WAIT=false, ASYNC_MASTER) are as safe as the slave's copy is recent, as in
RocketMQ. A slave that flushes later than it reports (ASYNC_FLUSH) may lose what it confirmed in a power failure, as
in any such system. Slaves that speak the classic protocol (Java's) copy the log but take no part in any of this: they
are in no set and are never elected.
"""
