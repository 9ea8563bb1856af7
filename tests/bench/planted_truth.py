"""What the marts must find in a world of planted truth."""

from typing import Any

import numpy as np

from tests.bench.planted_world import EXPIRED, MINED, POOLS, REPLACED, SECOND_US, WAITS, World


def truth_of(world: World) -> dict[str, Any]:
    """Count what was planted; times in seconds."""
    blocks, txs = world.blocks, world.txs
    n_tx = np.array([len(taken) for taken in blocks.taken]) + blocks.n_unseen
    interval_s = np.diff(blocks.arrived_us, prepend=np.nan) / SECOND_US
    is_empty = n_tx == 0
    pools = {}
    for number, policy in enumerate(POOLS):
        own = blocks.pool == number
        counts = world.acceptance[policy.slug]
        pools[policy.slug] = {
            "blocks": int(own.sum()),
            "empty": int((own & is_empty).sum()),
            "age_s": policy.age_s,
            "n_top": counts.n_top,
            "n_top_taken": counts.n_top_taken,
            "n_outside": counts.n_outside,
            "n_outside_taken": counts.n_outside_taken,
        }
    kinds = {"mined": MINED, "replaced": REPLACED, "expired": EXPIRED, "censored": WAITS}
    delay_s = (txs.left_us - txs.entered_us) / SECOND_US
    mined = txs.left_kind == MINED
    return {
        "blocks": len(n_tx),
        "stale": int(blocks.is_stale_rival.sum()),
        "mempool_txs": len(txs.entered_us),
        "confirmed_txs": int(n_tx.sum()),
        "unseen_txs": int(blocks.n_unseen.sum()),
        "pools": pools,
        "outcomes": {name: int((txs.left_kind == kind).sum()) for name, kind in kinds.items()},
        "mined_delay_mean_s": float(delay_s[mined].mean()),
        "empty_median_s": float(np.median(interval_s[1:][is_empty[1:]])) if is_empty.any() else None,
        "nonempty_median_s": float(np.median(interval_s[1:][~is_empty[1:]])),
        "children": int((txs.parent >= 0).sum()),
    }
