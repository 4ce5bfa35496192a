"""How epochs are numbered: a restart of a master adds one, a promotion goes to the next thousand.

A master that was replaced while it was down, comes back, and reaches no other member also begins a mastership. If it
counted from the same number as the promotion that replaced it, two different logs would get the same epoch. So restarts
stay between two thousands, and two logs that diverge always have different epochs from there. Members that are promoted
at the same time, by force and without knowing of each other, use different hundreds. Where etcd assigns epochs, each is
assigned once anyway; elections count as promotions.
"""

from __future__ import annotations

from typing import Final

PROMOTION_STEP: Final = 1000
# How many member ids a promotion can distinguish.
MEMBERS: Final = 10


def count_restart(last: int) -> int:
    """The epoch of a master that restarts; `last` is the highest epoch it has seen."""
    return last + 1


def count_promotion(highest: int, member: int = 0) -> int:
    """The epoch of a member that becomes the master in place of another: above all, and out of reach of restarts."""
    return (highest // PROMOTION_STEP + 1) * PROMOTION_STEP + member % MEMBERS * (PROMOTION_STEP // MEMBERS)


def count_start(seen: int, led: int, member: int = 0) -> int:
    """The epoch of a broker that starts as the master; `led` is the last one in which it was the master itself.

    If another broker was the master since, an operator has changed the configuration of a slave to that of a master,
    and that is a promotion: the other one may be restarting at the same time.
    """
    return count_restart(seen) if seen == led else count_promotion(seen, member)


def was_promoted(epoch: int) -> bool:
    """Has the mastership moved from one member to another, up to this epoch?"""
    return epoch >= PROMOTION_STEP
