"""Quotas: the patch, the login to a cluster, and the errors when it refuses."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import subprocess
import sys
import tempfile
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from gnomon.act.kubernetes import (
    Cluster,
    QuotaGone,
    QuotaRefused,
    find_cluster,
    quota_patch,
)
from gnomon.act.kubernetes import cluster as connection
from gnomon.errors import ActuationError, InputError, MissingExtra
from tests.act import fake_cluster
from tests.act.fake_cluster import TOKEN, FakeCluster, kubeconfig, serving

PLAN = quota_patch("spark", "executors", pods=1)


@pytest.fixture(autouse=True)
def no_other_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "_SERVICE_ACCOUNT", tmp_path / "account")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster():
    with serving() as handler:
        yield handler


@pytest.fixture
def config(cluster, tmp_path):
    return kubeconfig(tmp_path / "config", cluster.url)


def test_a_patch_changes_what_it_names_and_can_be_undone(cluster, config):
    plan = quota_patch("spark", "executors", pods=4, cpu=2.5, reason="420 g/kWh")
    assert plan.describe() == "quota spark/executors: pods 4, requests.cpu 2500m (420 g/kWh)"
    api = find_cluster(config)
    assert cluster.seen == []  # neither a plan nor a login sends anything
    before = api.read(plan)
    assert before.hard == {"pods": "20", "limits.memory": "64Gi"}
    after = {"pods": "4", "limits.memory": "64Gi", "requests.cpu": "2500m"}
    assert api.patch(plan).hard == after
    assert cluster.seen[-1] == (
        "PATCH", "/api/v1/namespaces/spark/resourcequotas/executors", "application/merge-patch+json",
    )  # fmt: skip
    assert api.patch(plan).hard == after
    undo = msgspec.structs.replace(plan, hard={"pods": "20", "requests.cpu": None})
    assert "requests.cpu without limit" in undo.describe()
    assert api.patch(undo).hard == before.hard


@pytest.mark.parametrize(
    ("cpu", "written"), [(4, "4"), (0.25, "250m"), (1.0004, "1"), (100.5, "100500m")]
)
def test_cores_are_written_as_kubernetes_has_them(cpu, written):
    assert quota_patch("n", "q", cpu=cpu).hard == {"requests.cpu": written}


@pytest.mark.parametrize(
    "wrong",
    [
        dict(namespace="spark", name="q", pods=0),
        dict(namespace="spark", name="q", cpu=0),
        dict(namespace="spark", name="q", cpu=float("nan")),
        dict(namespace="spark", name="q"),
        dict(namespace="a/../kube-system", name="q", pods=1),
        dict(namespace="spark", name="Q?x=1", pods=1),
        dict(namespace="", name="q", pods=1),
    ],
    ids=["no-pods", "no-cores", "nan", "no-limit", "path", "query", "empty"],
)
def test_plans_that_make_no_sense(wrong):
    with pytest.raises(InputError):
        quota_patch(**wrong)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((403, b'{"message": "user cannot patch resourcequotas"}'), "403 user cannot patch"),
        ((500, b"<html>"), "refused: 500$"),
        ((200, b"<html>"), "did not answer with a quota"),
        ((200, b'{"spec": {"hard": [1]}}'), "did not answer with a quota"),
    ],
    ids=["forbidden", "broken", "no-json", "no-quota"],
)
def test_errors_do_not_hold_the_token(cluster, config, answer, message):
    cluster.answer = answer
    with pytest.raises(ActuationError, match=message) as caught:
        find_cluster(config).read(PLAN)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(403, QuotaRefused), (404, QuotaGone), (409, QuotaRefused), (408, ActuationError),
     (500, ActuationError), (504, ActuationError)],
)  # fmt: skip
def test_what_was_surely_not_done(cluster, config, code, kind):
    """A server that ran out of time may have done it. One request each: none is repeated."""
    cluster.answer = (code, b"{}")
    with pytest.raises(ActuationError) as caught:
        find_cluster(config).patch(PLAN)
    assert type(caught.value) is kind
    assert len(cluster.seen) == 1


def test_a_patch_for_another_version_is_refused(cluster, config):
    with pytest.raises(QuotaRefused, match="409 was modified"):
        find_cluster(config).patch(msgspec.structs.replace(PLAN, version="7"))
    assert cluster.quota["spec"]["hard"]["pods"] == "20"


def test_an_unknown_token_and_an_unknown_quota(cluster, config):
    with pytest.raises(QuotaGone, match="404 resourcequotas"):
        find_cluster(config).read(quota_patch("spark", "nobody", pods=1))
    kubeconfig(config, cluster.url, user={"token": "other"})
    with pytest.raises(QuotaRefused, match="401 Unauthorized"):
        find_cluster(config).read(PLAN)


def test_a_redirect_does_not_get_the_token(cluster, config):
    class Redirecting(FakeCluster):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", cluster.url + self.path)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        kubeconfig(config, f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ActuationError, match="refused: 302"):
            find_cluster(config).read(PLAN)
        assert cluster.seen == []
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_no_server(config):
    with contextlib.closing(ThreadingHTTPServer(("127.0.0.1", 0), FakeCluster).socket) as free:
        port = free.getsockname()[1]
    kubeconfig(config, f"http://127.0.0.1:{port}")
    with pytest.raises(ActuationError, match="cannot be reached"):
        find_cluster(config).read(PLAN)


def test_no_answer(cluster, config):
    cluster.may_patch.clear()
    with pytest.raises(ActuationError, match=r"no answer of the cluster within 0\.2 s") as caught:
        Cluster(str(config), timeout_s=0.2).patch(PLAN)
    assert type(caught.value) is ActuationError  # it may have been done


def test_a_login_that_does_not_end(cluster, config):
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable,
             "args": ["-c", "import time; time.sleep(600)"]}  # fmt: skip
    kubeconfig(config, cluster.url, user={"exec": login})
    with pytest.raises(ActuationError, match=r"no answer of the cluster within 0\.5 s"):
        Cluster(str(config), timeout_s=0.5).check_login()


@pytest.mark.parametrize("server", ["http://10.0.0.1", "ftp://127.0.0.1", "cluster", "https://"])
def test_tokens_travel_over_https_only(config, server):
    with pytest.raises(InputError, match="https"):
        find_cluster(kubeconfig(config, server))


def test_a_token_does_not_pass_a_proxy_in_plain_text(config, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://10.0.0.1:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(InputError, match="https"):
        find_cluster(config)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert find_cluster(config).patch(PLAN).hard["pods"] == "1"


def test_the_kubeconfig_of_the_environment(config, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert find_cluster().patch(PLAN).hard["pods"] == "1"


def test_in_a_program_with_an_event_loop(config):
    async def patch():
        return find_cluster(config).patch(PLAN)

    assert asyncio.run(patch()).hard["pods"] == "1"


@pytest.mark.parametrize("printed", [{"token": TOKEN}, {}], ids=["token", "nothing"])
def test_a_login_program(cluster, config, printed):
    """What aws, gcloud and others do in a kubeconfig."""
    program = f"import json; print(json.dumps({{'status': {printed}}}))"
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable,
             "args": ["-c", program]}  # fmt: skip
    kubeconfig(config, cluster.url, user={"exec": login})
    if printed:
        assert find_cluster(config).patch(PLAN).hard["pods"] == "1"
    else:
        with pytest.raises(InputError, match="Did not find credentials"):
            find_cluster(config)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "found: ParserError"), ("[]", "found: "), ("{}", "'current-context'"),
     ('{"current-context": "x", "contexts": []}', "Context x not found")],
    ids=["no-yaml", "a-list", "empty", "no-context"],
)  # fmt: skip
def test_kubeconfigs_that_are_none(config, text, message):
    config.write_text(text)
    with pytest.raises(InputError, match=message):
        find_cluster(config)


@pytest.mark.parametrize(
    ("user", "cluster_entry", "message"),
    [
        ({"token": "a\nb"}, {}, "the token is empty or not printable"),
        ({"token": "\u00e9"}, {}, "the token is empty or not printable"),
        ({"token": " "}, {}, "the token is empty or not printable"),
        ({"tokenFile": "none"}, {}, "No such file"),
        ({}, {"insecure-skip-tls-verify": True}, "would not verify the server"),
        ({}, {"certificate-authority-data": "eA=="}, "NO_CERTIFICATE_OR_CRL_FOUND"),
    ],
    ids=["two-lines", "no-ascii", "blank", "no-file", "insecure", "no-certificate"],
)
def test_logins_that_are_refused(config, user, cluster_entry, message):
    kubeconfig(config, "https://c", user=user, cluster=cluster_entry)
    with pytest.raises(InputError, match=message):
        find_cluster(config)


def test_no_cluster(monkeypatch):
    with pytest.raises(InputError, match=r"no Kubernetes cluster found: .*; set KUBECONFIG"):
        find_cluster()


def test_without_kr8s(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "kr8s.asyncio", None)
    with pytest.raises(MissingExtra, match=r"run: pip install 'gnomon\[k8s\]'"):
        find_cluster(config)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A certificate of this address that is its own authority, and its key."""
    place = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=cluster", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(place / "key.pem"), "-out", str(place / "cert.pem")],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    return place


def tls(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    return context


def test_limits_and_annotations_over_tls(authority, config):
    with serving(tls(authority)) as cluster:
        kubeconfig(
            config, cluster.url, cluster={"certificate-authority": str(authority / "cert.pem")}
        )
        here = find_cluster(config)
        noted = msgspec.structs.replace(PLAN, annotations={"gnomon/x": "1"})
        assert here.patch(noted).annotations == {"gnomon/x": "1"}
        gone = msgspec.structs.replace(PLAN, annotations={"gnomon/x": None})
        assert here.patch(gone).annotations == {}
        assert here.read(PLAN).annotations == {}
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403}
        cluster.answer = (403, json.dumps(status | {"message": "not yours"}).encode())
        with pytest.raises(QuotaRefused, match="not yours"):
            here.patch(PLAN)


def test_only_the_authority_of_the_kubeconfig_is_trusted(authority, config):
    pem = base64.b64encode((authority / "cert.pem").read_bytes()).decode()
    with serving(tls(authority)) as cluster:
        kubeconfig(config, cluster.url, cluster={"certificate-authority-data": pem})
        assert find_cluster(config).patch(PLAN).hard["pods"] == "1"
        unknown = find_cluster(kubeconfig(config, cluster.url))
        with pytest.raises(
            ActuationError, match=r"cannot be reached: .*CERTIFICATE_VERIFY_FAILED"
        ):
            unknown.patch(PLAN)


def test_a_client_certificate_whose_key_is_not_left_behind(
    authority, config, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    cert, key = (
        base64.b64encode((authority / f"{name}.pem").read_bytes()).decode()
        for name in ("cert", "key")
    )
    context = tls(authority)
    context.load_verify_locations(authority / "cert.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    user = {"token": TOKEN, "client-certificate-data": cert, "client-key-data": key}
    with serving(context) as cluster:
        kubeconfig(config, cluster.url, user=user, cluster={"certificate-authority-data": cert})
        assert find_cluster(config).patch(PLAN).hard["pods"] == "1"
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_from_inside_a_pod(authority, tmp_path, monkeypatch):
    """Whoever issues tokens replaces one before it expires, within the hour in a pod."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(TOKEN + "\n")
    (account / "ca.crt").write_bytes((authority / "cert.pem").read_bytes())
    with serving(tls(authority)) as cluster:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", cluster.url.rpartition(":")[2])
        here = find_cluster()
        assert here.read(PLAN).hard["pods"] == "20"
        monkeypatch.setattr(fake_cluster, "TOKEN", "rotated")
        (account / "token").write_text("rotated")
        assert here.patch(PLAN).hard["pods"] == "1"
    assert (account / "ca.crt").exists()
    (account / "token").unlink()
    with pytest.raises(InputError, match="No such file"):
        find_cluster()


def test_a_user_without_a_home(monkeypatch):
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setattr(connection.os.path, "expanduser", lambda path: path)
    with pytest.raises(InputError, match="Unable to find valid credentials"):
        find_cluster()


def test_a_token_is_read_from_its_file_for_each_request(cluster, config, monkeypatch):
    place = config.with_name("token")
    place.write_text(TOKEN + "\n")
    kubeconfig(config, cluster.url, user={"tokenFile": "token"})
    api = find_cluster(config)
    api.read(PLAN)
    monkeypatch.setattr(fake_cluster, "TOKEN", "rotated")
    with pytest.raises(QuotaRefused, match="401"):
        api.read(PLAN)
    place.write_text("rotated\n")
    assert api.patch(PLAN).hard["pods"] == "1"
    place.write_text("")
    with pytest.raises(ActuationError, match="the token is empty"):
        api.read(PLAN)
    place.unlink()
    with pytest.raises(ActuationError, match="No such file"):  # it may come back
        api.read(PLAN)
