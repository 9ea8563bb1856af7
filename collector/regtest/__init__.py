"""Start a private bitcoind on regtest and play a scripted scenario on it.

bitcoind = find_bitcoind()
scenario = load_scenario("demo")
with RegtestNode(bitcoind) as node:
    prepared = prepare_scenario(scenario, node)
    truth = run_scenario(scenario, node, out, prepared=prepared)
"""

from collector.regtest.bitcoind import Bitcoind, find_bitcoind
from collector.regtest.node import RegtestNode
from collector.regtest.preparation import PreparedScenario, make_wallet, prepare_scenario
from collector.regtest.run import run_scenario
from collector.regtest.scenario import Scenario, load_scenario, scenario_names
from collector.regtest.truth import Truth

__all__ = [
    "Bitcoind",
    "PreparedScenario",
    "RegtestNode",
    "Scenario",
    "Truth",
    "find_bitcoind",
    "load_scenario",
    "make_wallet",
    "prepare_scenario",
    "run_scenario",
    "scenario_names",
]
