"""Test the settings: their sources, which source overrides which, and the errors of wrong ones."""

import os
import re
from pathlib import Path

import pytest

from collector.config import NodeSettings, Settings, load_settings
from collector.errors import SettingsError
from collector.node.access import find_access, read_conf


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a home folder of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))


def write(path: Path, text: str) -> Path:
    """Write a text file and make the folders above it; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_flags_go_before_environment_before_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag overrides a variable, and a variable overrides the file."""
    file = write(tmp_path / "c.toml", 'chain = "signet"\nqueue_limit = 5000\nfee_batch = 7\n')
    monkeypatch.setenv("POOL_COLLECTOR_QUEUE_LIMIT", "6000")
    monkeypatch.setenv("POOL_COLLECTOR_CHAIN", "testnet4")
    settings = load_settings(file, chain="regtest", dataset=None)
    assert (settings.chain, settings.queue_limit, settings.fee_batch) == ("regtest", 6000, 7)
    assert settings.dataset == Path("data/dataset")


def test_several_nodes_have_names_of_their_own(tmp_path: Path) -> None:
    """Two [[node]] tables are two nodes; the same name twice is an error."""
    file = write(tmp_path / "c.toml", '[[node]]\nname = "a"\n[[node]]\nname = "b"\n')
    assert [node.name for node in load_settings(file).node] == ["a", "b"]
    write(file, '[[node]]\nname = "a"\n[[node]]\nname = "a"\n')
    with pytest.raises(SettingsError, match="same name"):
        load_settings(file)


def test_node_flags_are_those_of_the_one_node(tmp_path: Path) -> None:
    """A flag completes the one node of the file; with several it is refused."""
    file = write(tmp_path / "c.toml", '[[node]]\nname = "a"\n')
    (node,) = load_settings(file, datadir=Path("/d")).node
    assert (node.name, node.datadir) == ("a", Path("/d"))
    write(file, '[[node]]\nname = "a"\n[[node]]\nname = "b"\n')
    with pytest.raises(SettingsError, match="several nodes"):
        load_settings(file, datadir=Path("/d"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seal_intervall_s = 3", r"unknown setting seal_intervall_s; did you mean seal_interval_s\?"),
        ('[[node]]\nname = "a"\nrpcurl = "x"', r"unknown setting node\.0\.rpcurl; did you mean rpc_url\?"),
        ('[[node]]\nname = "a"\nchain = "main"', r"node\.0\.chain does not .*; write chain before the first"),
        ('rpc_url = "x"', r"rpc_url does not belong here; write rpc_url below a \[\[node\]\]"),
        ("zzz = 1", r"unknown setting zzz; collector/README\.md lists all"),
        ('chain = "doge"', "chain: "),
        ("queue_limit = 1", "queue_limit: "),
        ('metrics = "0.0.0.0:9000"', "loopback"),
        ('[[node]]\nname = "../up"', r"node\.0\.name: '\.\./up' cannot be the name of a folder"),
        ("node = []", "node: "),
        ('[node]\nname = "a"', r"node: this must be a list of tables.*\[\[node\]\]"),
        ('node = ["a"]', r"node: this must be a list of tables"),
        ("seal_interval_s = inf", "seal_interval_s: .*86400"),
        ("clock_step_s = nan", "clock_step_s: "),
        ("queue_limit = 99999999999999999999", "queue_limit: "),
        ('dataset = ""', "dataset: '' is not a path"),
        ('dataset = "a\\u0000b"', "dataset: .* is not a path"),
        ('dataset = "~nobody-of-this-name/d"', "dataset: there is no home folder"),
        ("[[node]]\ndatadir = 7", r"node\.0\.datadir: 7 is not a path"),
        ("chain = ", "is not TOML"),
    ],
)
def test_a_wrong_setting_names_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    """The message has the file, the key and what is wrong."""
    file = write(tmp_path / "c.toml", text)
    with pytest.raises(SettingsError, match=rf"{file}.*{words}"):
        load_settings(file)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown names and bad values in the environment are errors too."""
    monkeypatch.setenv("POOL_COLLECTOR_CHAIN", "doge")
    with pytest.raises(SettingsError, match="environment variable POOL_COLLECTOR_CHAIN: chain"):
        load_settings()
    monkeypatch.delenv("POOL_COLLECTOR_CHAIN")
    monkeypatch.setenv("POOL_COLLECTOR_DATASETT", "x")
    with pytest.raises(
        SettingsError, match=r"POOL_COLLECTOR_DATASETT; did you mean POOL_COLLECTOR_DATASET\?"
    ):
        load_settings()


def test_a_path_that_is_not_utf8_is_refused() -> None:
    """A path that is not UTF-8 is refused, because the dataset stores the settings as JSON."""
    with pytest.raises(SettingsError, match=r"dataset: '/caf\\udce9' is not UTF-8"):
        load_settings(dataset=Path(os.fsdecode(b"/caf\xe9")))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    """A missing settings file is an error that names it."""
    with pytest.raises(SettingsError, match="there is no settings file"):
        load_settings(tmp_path / "none.toml")


def test_a_file_without_end_is_refused() -> None:
    """A device that never ends is refused before it takes the memory."""
    with pytest.raises(
        SettingsError, match="/dev/zero has more than 1,048,576 bytes: it is no settings file"
    ):
        load_settings(Path("/dev/zero"))


def test_the_example_loads(repo_root: Path) -> None:
    """The example file is valid, and its values are the defaults."""
    settings = load_settings(repo_root / "collector" / "config.example.toml")
    assert settings.node
    assert settings.metrics
    without = {"node", "metrics"}
    assert settings.model_dump(exclude=without) == Settings().model_dump(exclude=without)
    assert settings.node[0].model_dump(exclude={"name"}) == NodeSettings().model_dump(exclude={"name"})


def test_the_example_says_where_it_differs_from_the_defaults(repo_root: Path) -> None:
    """The head of the example file names the settings whose value there is not the default."""
    path = repo_root / "collector" / "config.example.toml"
    head = path.read_text().partition("\n\n")[0]
    settings, defaults = load_settings(path), Settings()
    differ = {name for name in Settings.model_fields if getattr(settings, name) != getattr(defaults, name)}
    assert differ == {"metrics", "node"}
    assert "`metrics` is not set" in head
    assert f'`name` of the only node is "{defaults.node[0].name}"' in head


def test_the_example_has_every_setting(repo_root: Path, tmp_path: Path) -> None:
    """Every setting is in the example file, some as a comment, and the comments are valid too."""
    text = (repo_root / "collector" / "config.example.toml").read_text()
    lines = re.sub(r"^# (?=[a-z_]+ = )", "", text, flags=re.MULTILINE)
    settings = load_settings(write(tmp_path / "c.toml", lines))
    assert settings.model_fields_set == set(Settings.model_fields)
    assert settings.node[0].model_fields_set == set(NodeSettings.model_fields)


@pytest.mark.parametrize(
    ("chain", "port", "folder"),
    [
        ("main", 8332, ""),
        ("test", 18332, "testnet3"),
        ("testnet4", 48332, "testnet4"),
        ("signet", 38332, "signet"),
        ("regtest", 18443, "regtest"),
    ],
)
def test_without_settings_the_node_of_this_user_is_found(
    tmp_path: Path, chain: str, port: int, folder: str
) -> None:
    """Port and cookie are the node's defaults for each chain."""
    access = find_access(NodeSettings(), chain)
    assert access.rpc_url == f"http://127.0.0.1:{port}"
    assert access.cookie_file == tmp_path / ".bitcoin" / folder / ".cookie"


def test_bitcoin_conf_is_read_as_the_node_reads_it(tmp_path: Path) -> None:
    """Sections go first, network settings before a section are mainnet's, datadir moves the cookie."""
    write(
        tmp_path / ".bitcoin" / "bitcoin.conf",
        "rpcport=1111 # mainnet's\ndatadir=/big/disk\n[regtest]\nrpcport=2222\nrpcport=3333\n"
        "[signet]\nrpccookiefile=auth\n",
    )
    assert find_access(NodeSettings(), "main").rpc_url.endswith(":1111")
    assert find_access(NodeSettings(), "regtest").rpc_url.endswith(":2222")
    assert find_access(NodeSettings(), "test").rpc_url.endswith(":18332")
    assert find_access(NodeSettings(), "signet").cookie_file == Path("/big/disk/signet/auth")
    assert find_access(NodeSettings(datadir=Path("/other")), "main").cookie_file == Path("/other/.cookie")


def test_the_password_of_bitcoin_conf_is_used_and_not_shown(tmp_path: Path) -> None:
    """A password replaces the cookie unless a cookie file is named; no representation has it."""
    conf = write(tmp_path / "b.conf", "rpcuser=me\nrpcpassword=hunter2\n")
    access = find_access(NodeSettings(conf=conf), "main")
    assert (access.user, access.password, access.cookie_file) == ("me", "hunter2", None)
    assert "hunter2" not in repr(access)
    named = find_access(NodeSettings(conf=conf, cookie_file=Path("/c")), "main")
    assert (named.password, named.cookie_file) == (None, Path("/c"))


def test_an_empty_password_leaves_the_cookie(tmp_path: Path) -> None:
    """With an empty rpcpassword the node writes a cookie, so the cookie file is used."""
    write(tmp_path / "bitcoin.conf", "rpcuser=me\nrpcpassword=\n")
    access = find_access(NodeSettings(datadir=tmp_path), "main")
    assert (access.password, access.cookie_file) == (None, tmp_path / ".cookie")


def test_included_files_count(tmp_path: Path) -> None:
    """Included files are relative to the datadir, come after the file itself, and include no others."""
    conf = write(tmp_path / "etc" / "a.conf", "includeconf=b.conf\n[regtest]\nrpcuser=first\n")
    write(tmp_path / "b.conf", "includeconf=c.conf\n[regtest]\nrpcport=5\nrpcuser=second\n")
    write(tmp_path / "c.conf", "[regtest]\nrpcconnect=6\n")
    found = read_conf(conf, "regtest", tmp_path, must_exist=True)
    assert found["regtest"] == {"rpcuser": ["first", "second"], "rpcport": ["5"]}
    with pytest.raises(SettingsError, match="there is no file"):
        read_conf(tmp_path / "d.conf", "regtest", tmp_path, must_exist=True)


def test_only_the_chain_of_a_section_takes_what_it_includes(tmp_path: Path) -> None:
    """An includeconf in a section counts only for the chain of that section, as in the node."""
    conf = write(tmp_path / "bitcoin.conf", "[regtest]\nincludeconf=b.conf\n")
    write(tmp_path / "b.conf", "rpcuser=me\n")
    assert "" in read_conf(conf, "regtest", tmp_path, must_exist=True)
    assert "" not in read_conf(conf, "signet", tmp_path, must_exist=True)


@pytest.mark.parametrize(
    ("bound", "url"),
    [
        ("rpcbind=::1", "http://[::1]:7"),
        ("rpcbind=[::1]:9", "http://[::1]:9"),
        ("rpcbind=[::1]", "http://[::1]:7"),
        ("rpcbind=0.0.0.0:9", "http://127.0.0.1:9"),
        ("rpcbind=192.0.2.1\nrpcbind=127.0.0.2", "http://127.0.0.2:7"),
        ("rpcbind=192.0.2.1", "http://192.0.2.1:7"),
        ("", "http://127.0.0.1:7"),
    ],
)
def test_the_node_is_asked_where_it_listens(tmp_path: Path, bound: str, url: str) -> None:
    """With rpcallowip, rpcbind gives the address; of several addresses loopback is chosen."""
    rest = "rpcport=7\n[main]\nrpcallowip=::/0\n"
    write(tmp_path / "bitcoin.conf", f"{bound}\n{rest}")
    assert find_access(NodeSettings(datadir=tmp_path), "main").rpc_url == url
    write(tmp_path / "bitcoin.conf", "rpcbind=192.0.2.1\n")
    assert find_access(NodeSettings(datadir=tmp_path), "main").rpc_url == "http://127.0.0.1:8332"


@pytest.mark.parametrize("line", ["chain=testnet4", "testnet4=1", "testnet4="])
def test_a_bitcoin_conf_of_another_chain_is_refused(tmp_path: Path, line: str) -> None:
    """A bitcoin.conf for another chain is an error that names the chain, before any connection."""
    write(tmp_path / "bitcoin.conf", f"regtest=0\n{line}\n")
    with pytest.raises(SettingsError, match=r"is on 'testnet4', the settings say 'main'; set chain"):
        find_access(NodeSettings(datadir=tmp_path), "main")
    assert find_access(NodeSettings(datadir=tmp_path), "testnet4").rpc_url.endswith(":48332")


def test_with_address_and_cookie_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rpc_url and cookie_file, a user without a home folder can run the collector."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    node = NodeSettings(rpc_url="http://127.0.0.1:1", cookie_file=Path("/c"))
    assert find_access(node, "main").cookie_file == Path("/c")
    with pytest.raises(SettingsError, match="no home folder; set datadir"):
        find_access(NodeSettings(), "main")


def test_metrics_leave_loopback_only_when_told(tmp_path: Path) -> None:
    """An address of another interface is refused with the name of the setting that allows it."""
    file = write(tmp_path / "c.toml", 'metrics = "0.0.0.0:9733"\n')
    with pytest.raises(SettingsError, match="allow_remote_metrics = true"):
        load_settings(file)
    write(file, 'metrics = "0.0.0.0:9733"\nallow_remote_metrics = true\n')
    assert load_settings(file).metrics == "0.0.0.0:9733"
