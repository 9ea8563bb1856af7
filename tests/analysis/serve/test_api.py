"""Test the API over a real socket: every answer of the planted world, its basis, its errors."""

import csv
import io

import pytest

from analysis.catalog import load_catalog
from tests.analysis.serve.conftest import Site
from tests.analysis.serve.hostile_world import EVIL, NODE, POOL_NAME
from tests.analysis.world import label_bytes


def shown(label: str) -> str:
    """Return the hash of a label in display order."""
    return label_bytes(label)[::-1].hex()


def test_an_answer_says_what_it_rests_on(site: Site) -> None:
    """Every JSON answer names whose word it is and how much was observed, in UTC."""
    answer = site.get("/api/v1/pools?window=all").json()

    assert answer["told_by"] == ["observed"]
    assert {row["topic"] for row in answer["coverage"]} == {"sequence", "rawtx", "rawblock", "mempool"}
    assert all(row["from_at"].endswith("Z") for row in answer["coverage"])
    assert answer["chain"] == "regtest"


def test_pools_have_their_share_in_a_window(site: Site) -> None:
    """Alpha has 3 of 4 active blocks of all time, and 1 of 1 of the last day."""
    whole = {row["pool"]: row["block_count"] for row in site.data("/api/v1/pools?window=all")}
    day = {row["pool"]: row["block_count"] for row in site.data("/api/v1/pools?window=24h")}

    assert whole == {"alpha": 3, "unknown": 1}
    assert day["alpha"] == 1
    assert day.get("unknown", 0) == 0


def test_blocks_come_page_by_page(site: Site) -> None:
    """The link to the next page leads through all blocks, each once."""
    hashes, path = [], "/api/v1/blocks?limit=2"
    while path:
        answer = site.get(path).json()
        hashes += [row["block_hash"] for row in answer["data"]]
        path = answer["next"]

    assert hashes == [shown(name) for name in ("b4", "s4", "b3", "b2", "b1")]


def test_a_pool_without_blocks_has_an_empty_list(site: Site) -> None:
    """A pool that is there is no error, even if it has no block at these heights."""
    assert site.data("/api/v1/blocks?pool=alpha&from_height=99") == []
    assert site.data("/api/v1/blocks?pool=unknown&from_height=99") == []


def test_one_block_is_told_whole(site: Site) -> None:
    """Coinbase, deciding rule, arrivals, and what differs from the template, each with a reason."""
    block = site.data("/api/v1/blocks/3")
    assert bytes.fromhex(block["coinbase_script"]).decode() == f"/Alpha/{EVIL}"
    assert (block["pool"], block["rule_id"]) == ("alpha", "alpha:tag:/Alpha/")
    assert [row["node"] for row in block["arrivals"]] == [NODE]

    differing = site.data(f"/api/v1/blocks/{shown('b2')}")["differences"]
    assert {(row["kind"], row["txid"], row["reason"]) for row in differing} == {
        ("missing", shown("new"), "tail"),
        ("extra", shown("unseen"), "unseen"),
    }


def test_listed_differences_are_those_that_the_mart_counts(site: Site) -> None:
    """The list of a block has as many missing and extra transactions as template_audit_block says."""
    block = site.data(f"/api/v1/blocks/{shown('b2')}")
    kinds = [row["kind"] for row in block["differences"]]

    assert [kinds.count("missing"), kinds.count("extra")] == [
        block["templates"][0]["n_missing"],
        block["templates"][0]["n_extra"],
    ]


def test_a_template_of_which_half_is_excused_has_no_score(site: Site) -> None:
    """One of two transactions promised to block b2 may be missing, so the other one alone would decide."""
    block = site.data(f"/api/v1/blocks/{shown('b2')}")
    (template,) = block["templates"]

    assert (template["n_promised"], template["n_matched"], template["n_missing_tail"]) == (2, 1, 1)
    assert template["score_ratio"] == 1
    assert block["template_score_ratio"] is None
    assert "not judged" in site.get("/blocks/2").text


def test_one_transaction_is_told_whole(site: Site) -> None:
    """It was seen, passed over by two blocks, and mined by the fourth."""
    slow = site.data(f"/api/v1/transactions/{shown('slow')}")

    assert [(row["node"], row["fee_sat"]) for row in slow["stays"]] == [(NODE, 300)]
    assert [row["height"] for row in slow["mined"]] == [4]
    assert [row["height"] for row in slow["passed_over"]] == [2, 3]


def test_a_replacement_is_told_from_both_sides(site: Site) -> None:
    """The old transaction names the new one, and the new one the old one."""
    old = site.data(f"/api/v1/transactions/{shown('old')}")
    new = site.data(f"/api/v1/transactions/{shown('new')}")

    assert [row["replaced_by"] for row in old["replaced_by"]] == [shown("new")]
    assert [row["txid"] for row in new["replaces"]] == [shown("old")]


def test_a_mempool_is_replayed_as_of_a_moment(site: Site) -> None:
    """The verdict is told with what waited, the same as CSV; a moment without a watch has no totals."""
    then = site.data("/api/v1/mempool?at=2026-01-01T23:59:00Z")
    table = csv.DictReader(io.StringIO(site.get("/mempool.csv?at=2026-01-01T23:59:00Z").text))
    never = site.data("/api/v1/mempool?at=2020-01-01")

    assert [row["is_observed"] for row in then["verdicts"]] == [True]
    assert [row["txid"] for row in then["rows"]] == [shown(txid) for txid in ("quick", "new", "slow")]
    assert [row["txid"] for row in table] == [row["txid"] for row in then["rows"]]
    assert then["steps"]["block_after"] == "2026-01-01T23:59:59.999999Z"
    assert (never["totals"], never["rows"]) == (None, [])


def test_a_csv_address_stays_and_is_inert(site: Site) -> None:
    """/pools.csv has the columns and rows of the JSON answer, and says whose word they are."""
    answer = site.get("/pools.csv?window=all")
    rows = list(csv.DictReader(io.StringIO(answer.text)))

    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["told-by"] == "observed"
    assert [row["pool_name"] for row in rows if row["pool"] == "alpha"] == [POOL_NAME]
    assert list(rows[0]) == list(site.data("/api/v1/pools?window=all")[0])


def test_every_mart_is_offered_as_json_and_csv(site: Site) -> None:
    """Both have the columns that the catalog gives, and the same number of rows."""
    for model in load_catalog().layer("marts"):
        rows = site.data(f"/api/v1/marts/{model.name}?limit=1000")
        table = list(csv.reader(io.StringIO(site.get(f"/marts/{model.name}.csv?limit=1000").text)))

        assert tuple(table[0]) == model.column_names
        assert len(table) - 1 == len(rows)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/v1/pools?window=fortnight", 404, "24h, 7d, 30d, 1y, all"),
        ("/api/v1/pools/nobody", 404, "and no block names"),
        ("/api/v1/blocks?pool=nobody", 404, "and no block names"),
        ("/blocks.csv?pool=nobody&from_height=1", 404, "and no block names"),
        ("/api/v1/blocks/99", 404, "no valid block"),
        ("/api/v1/blocks/' OR 1=1 --", 404, "its height or its hash"),
        ("/api/v1/blocks?limit=100000", 422, "limit"),
        ("/api/v1/blocks?from_height=-1", 422, "from_height"),
        ("/api/v1/blocks?Limit=2", 422, "limit, offset, pool, from_height, to_height"),
        ("/api/v1/pools?windows=24h", 422, "it takes window."),
        (f"/api/v1/coverage?{EVIL}=1", 422, "it takes none."),
        ("/blocks.csv?limit=2&height=3", 422, "limit, offset, pool, from_height, to_height"),
        ("/api/v1/transactions/abc", 404, "64 hex digits"),
        ("/api/v1/transactions/" + "00" * 32, 404, "and no block of this dataset"),
        ("/api/v1/mempool?at=yesterday", 422, "write it in UTC"),
        ("/mempool.csv?at=yesterday", 422, "write it in UTC"),
        ("/api/v1/mempool?node=nobody", 404, "was watched; /api/v1/coverage names all"),
        ("/mempool.csv?at=2020-01-01", 404, "begins at 2026-01-01T00:00:00Z"),
        ("/api/v1/marts/stg_blocks", 404, "no such mart"),
        ("/api/v1/marts/pool_share;DROP", 404, "no such mart"),
        ("/api/v1/nothing", 404, "no such page"),
        (f"/api/v1/pools/{EVIL}", 404, ""),
        ("/api/v1/pools/" + "x" * 5000, 422, "slug"),
    ],
)
def test_a_wrong_request_gets_one_plain_sentence(site: Site, path: str, status: int, words: str) -> None:
    """The problem has the status, says what is wrong, and repeats nothing that a stranger wrote."""
    answer = site.get(path)

    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert words in answer.json()["detail"]
    assert "script" not in answer.json()["detail"]


def test_what_has_not_changed_is_not_sent_again(site: Site) -> None:
    """The ETag of an answer, sent back, gives 304 without a body; another address has another ETag."""
    first = site.get("/api/v1/blocks?limit=2")
    again = site.get("/api/v1/blocks?limit=2", If_None_Match=first.headers["etag"])

    assert (again.status_code, again.content) == (304, b"")
    assert site.get("/api/v1/blocks?limit=3", If_None_Match=first.headers["etag"]).status_code == 200


def test_the_api_describes_itself(site: Site) -> None:
    """The OpenAPI document names each address, and the form of answers and problems."""
    document = site.get("/api/v1/openapi.json").json()

    assert {"/api/v1/pools", "/api/v1/blocks/{block}", "/pools.csv", "/marts/{name}.csv"} <= document[
        "paths"
    ].keys()
    assert {"Answer", "Problem"} <= document["components"]["schemas"].keys()


def test_findings_are_the_sentences_of_the_report(site: Site) -> None:
    """The first finding names the largest pool."""
    found = site.data("/api/v1/findings")

    assert found[0]["topic"] == "share"
    assert "3 of 4 blocks" in found[0]["sentences"][0]
