"""Who of the members of a broker name is its master: one machine in each member, etcd between them; no I/O.

`view` says what etcd holds and what goes in and out of the machine, `insync` keeps the set of members that have all
that was acknowledged, `ballot` counts an election, `machine` decides.

A master acknowledges while its lease lives by its own clock: until the moment it sent the last answered request to
keep the lease, plus the seconds etcd gave, minus a margin for clocks that do not run alike. etcd cannot let another
in before. That alone would rest on clocks (and a machine that was suspended has a monotonic clock that stood still),
so acknowledgements of sync replication rest on two more things that do not. They need every member of the in-sync set,
and the set shrinks only by a transaction that proves the mastership. And a member stops following and reporting
(DETACHING) before it takes part in an election, so an old master gets nothing confirmed by those who elect a new one.

An election: the master's key is gone. Each member of the in-sync set stops following, then publishes where its log
ends, marked with the revision of `state`, which names this election and no other. When all living ones have done so
(or after `election_s`), the one with the latest epoch, in it the most data, in that the lowest id, claims. Positions
alone would not do: the longer log may be the tail that an earlier master never got confirmed, and readers have seen
the later epoch. The others claim if nobody did after `takeover_s` for each one before them. The claim is one
transaction: no master, `state` and the keys of the set's members unchanged. So a member that publishes more data a
moment before makes it fail and be thought over. The set of the new epoch is the old one without those who have no
living key, unless that leaves fewer than an acknowledgement needs.

When all who publish have seen no master since their start, they give the others `cold_s` to come, because after a power
failure the one that starts first is not the one that has the most. A member whose log knows of no epoch at all, though
the set has it, lost its disk and does not stand. Members outside the set wait, and say so; an operator may force them
(`Forced`). The first start ever has no `state`, and no member has a log: the one that is configured as the master makes
it.

etcd may lose everything, at any time. Then there is no `state`, but there are logs, and every member remembers whom it
ever met, which it publishes with its log. A master had all that was acknowledged in its epoch. So when all are here
that any of them ever met, and have stopped following (they publish for the round FOUNDING), the one with the latest
epoch, in it the most data, has everything, and makes the state anew; unless an epoch was heard of that no log has.
Nobody founds while one is missing: it may have been the last master. An old master that does not know yet that etcd has
forgotten it is missing too until it has stopped. An etcd that was restored from a backup has a state of the past;
members that saw its revision go back take that for damaged.

What is not known is not guessed. A call without answer is made again with the same comparisons, so it cannot happen
twice, and the view tells whether it happened before. A lease is given back, or known to be over, before another is
taken: a claim that is late cannot come true on a lease that nobody keeps in mind. A fenced master that reaches etcd
again gives its lease back and stands for election like everybody else. When etcd is gone for all, the master fences
itself when its lease is over and slaves go on serving reads; writes go on when etcd is back.

What is damaged on its way to etcd is there and says nothing. A claim that came true so is made again over its own keys,
and the member leads when it has read what it wrote. A damaged set is written again by the master, which needs the old
and the new one meanwhile; if it dies before, those who saw the set before, and missed no change, go by that. A damaged
key of a member is written again by it. So only a damaged `state` that nobody in the set remembers wants an operator.

Messages that nobody waits for (WAIT=false, ASYNC_MASTER) are as safe as the slave's copy is new, as in RocketMQ. A
slave that flushes later than it reports (ASYNC_FLUSH) may lose what it confirmed to a power failure, as anywhere.
Slaves that speak the classic protocol (Java's) copy the log but have no part in any of this: they are in no set and are
never elected.
"""
