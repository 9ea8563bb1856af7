"""List all faults in the order of the report's table: importing a fault's module registers it."""

from tests.functional.chaos import (
    fault_answers,
    fault_clock,
    fault_compact,
    fault_disk,
    fault_kill,
    fault_load,
    fault_network,
    fault_node,
    fault_store,
    fault_wire,
    flood,
    steady,
)
from tests.functional.chaos.registry import FAULTS

ORDER = (
    fault_kill,
    fault_node,
    fault_network,
    fault_answers,
    fault_disk,
    fault_store,
    fault_compact,
    fault_clock,
    fault_wire,
    fault_load,
    flood,
    steady,
)
MODULES = [module.__name__ for module in ORDER]
FAULTS = dict(sorted(FAULTS.items(), key=lambda item: MODULES.index(item[1].play.__module__)))
