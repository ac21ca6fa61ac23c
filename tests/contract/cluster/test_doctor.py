"""rqretry doctor, status and a worker's banner on a cluster."""

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.cluster.conftest import ClusterLab
from tests.contract.integration.harness import NAMESPACE
from tests.edges.cli.shell import Shell
from tests.support.servers import free_port


def test_every_primary_is_examined_and_each_warning_has_its_fix(lab: ClusterLab) -> None:
    answer = Shell(lab.url).json("doctor")
    findings = answer["findings"]
    for check in ("role", "eviction", "rights", "slots", "replicas", "fencing"):
        assert len([f for f in findings if f["check"] == check]) == 3, check
    ports = {f["sentence"].split(": ")[0] for f in findings if f["check"] == "slots"}
    assert ports == {server.address for server in lab.cluster.primaries}
    assert {f["severity"] for f in findings if f["check"] in ("cluster", "slots")} == {"ok"}
    assert {f["severity"] for f in findings if f["check"] == "replicas"} == {"warning"}
    assert all(f["fix"] for f in findings if f["severity"] != "ok")


def test_one_node_by_its_own_url_is_reported_how_to_write_it(lab: ClusterLab) -> None:
    recorded = Shell(f"redis://{lab.cluster.servers[0].address}").ok("doctor")
    assert "redis+cluster://" in recorded


def test_a_server_that_is_no_cluster_is_named(lab: ClusterLab) -> None:
    with EmbeddedRedis(port=free_port()) as single:
        sh = Shell(f"redis+cluster://127.0.0.1:{single._port}")
        assert "begin the URL with redis://" in sh.fails("status", status=1)


def test_commands_work_on_a_cluster(lab: ClusterLab) -> None:
    sh = Shell(lab.url)
    request_parts = ("--namespace", NAMESPACE)
    sh.ok("topic", "create", "t", "--partitions", "6", *request_parts)
    id_ = sh.ok("publish", "t", "--body", "1", *request_parts).strip()
    assert id_ in sh.ok("receive", "t", "--group", "g", "--create-group", "--ack", *request_parts)
    assert "t" in sh.ok("status", *request_parts)
    sh.ok("fsck", *request_parts)
    assert f"namespaces {NAMESPACE}:" in sh("status", "--namespace", "another").stderr
    sh.ok("message", sh.ok("publish", "t", "--body", "2", *request_parts).strip(), *request_parts)
