"""How epochs are numbered: a restart of a master counts ones, a promotion counts thousands.

A master that was replaced while it was down, comes back, and reaches nobody begins a mastership too. Counting from the
same number as the promotion that replaced it, it would take the same epoch for another log. Restarts therefore stay
between two thousands, and two logs that part always part with different epochs. Members that are promoted at the same
time, by force and without hearing of each other, take different hundreds. Where etcd hands out epochs, each is handed
out once anyway; elections count as promotions.
"""

from __future__ import annotations

from typing import Final

PROMOTION_STEP: Final = 1000
# Ids of members that a promotion tells apart.
MEMBERS: Final = 10


def count_restart(last: int) -> int:
    """The epoch of a master that starts again, where `last` is the highest it has seen."""
    return last + 1


def count_promotion(highest: int, member: int = 0) -> int:
    """The epoch of a member that becomes the master in place of another: above all, and no restart comes to it."""
    return (highest // PROMOTION_STEP + 1) * PROMOTION_STEP + member % MEMBERS * (PROMOTION_STEP // MEMBERS)


def count_start(seen: int, led: int, member: int = 0) -> int:
    """The epoch of a broker that starts as the master, where `led` is the last one in which it was the master itself.

    If another was the master since, then an operator has changed the configuration of a slave to that of a master, and
    that is a promotion: the other one may be starting again at the same time.
    """
    return count_restart(seen) if seen == led else count_promotion(seen, member)


def was_promoted(epoch: int) -> bool:
    """Has a mastership up to this epoch gone from one member to another?"""
    return epoch >= PROMOTION_STEP
