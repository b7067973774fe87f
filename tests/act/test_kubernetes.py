"""Quotas: the patch, the ways to a cluster, and what they say when it refuses."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import ssl
import stat
import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer

import msgspec
import pytest

from gnomon.act import kubernetes
from gnomon.act.kubernetes import (
    KubeApi,
    Kubectl,
    QuotaGone,
    QuotaRefused,
    apply,
    find_cluster,
    quota_patch,
)
from gnomon.errors import ActuationError, InputError
from tests.act import fake_cluster
from tests.act.fake_cluster import TOKEN, FakeCluster, kubeconfig, serving


@pytest.fixture
def cluster():
    with serving() as handler:
        yield handler


def test_a_patch_changes_what_it_names_and_can_be_undone(cluster):
    plan = quota_patch("spark", "executors", pods=4, cpu=2.5, reason="420 g/kWh")
    assert cluster.seen == []  # a plan touches nothing
    assert plan.describe() == "quota spark/executors: pods 4, requests.cpu 2500m (420 g/kWh)"
    api = KubeApi(cluster.url, TOKEN)
    applied = apply(plan, api)
    assert applied.before == {"pods": "20", "limits.memory": "64Gi"}
    assert applied.after == {"pods": "4", "limits.memory": "64Gi", "requests.cpu": "2500m"}
    assert cluster.seen[-1] == (
        "PATCH", "/api/v1/namespaces/spark/resourcequotas/executors", "application/merge-patch+json",
    )  # fmt: skip
    assert apply(plan, api).after == applied.after
    undo = applied.undo()
    assert "requests.cpu without limit" in undo.describe()
    assert apply(undo, api).after == applied.before


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
    ("answer", "said"),
    [
        ((403, b'{"message": "user cannot patch resourcequotas"}'), "403 user cannot patch"),
        ((500, b"<html>"), "500 Internal Server Error"),
        ((200, b"<html>"), "did not answer with a quota"),
        ((200, b'{"spec": {"hard": [1]}}'), "did not answer with a quota"),
    ],
    ids=["forbidden", "broken", "no-json", "no-quota"],
)
def test_what_a_cluster_refuses_is_said_without_the_token(cluster, answer, said):
    cluster.answer = answer
    with pytest.raises(ActuationError, match=said) as caught:
        apply(quota_patch("spark", "executors", pods=1), KubeApi(cluster.url, TOKEN))
    assert TOKEN not in str(caught.value)


def test_a_token_that_is_not_known_and_a_quota_that_is_not_there(cluster):
    with pytest.raises(ActuationError, match="401 Unauthorized"):
        apply(quota_patch("spark", "executors", pods=1), KubeApi(cluster.url, "other"))
    with pytest.raises(ActuationError, match="404 resourcequotas"):
        apply(quota_patch("spark", "nobody", pods=1), KubeApi(cluster.url, TOKEN))


def test_a_redirect_does_not_get_the_token(cluster):
    class Redirecting(FakeCluster):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", "http://example.org/")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        api = KubeApi(f"http://127.0.0.1:{server.server_port}", TOKEN)
        with pytest.raises(ActuationError, match=r"redirects to example\.org"):
            apply(quota_patch("spark", "executors", pods=1), api)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_nobody_there():
    with contextlib.closing(ThreadingHTTPServer(("127.0.0.1", 0), FakeCluster).socket) as free:
        port = free.getsockname()[1]
    with pytest.raises(ActuationError, match="cannot be reached"):
        apply(quota_patch("n", "q", pods=1), KubeApi(f"http://127.0.0.1:{port}", TOKEN))


@pytest.mark.parametrize("server", ["http://10.0.0.1", "ftp://127.0.0.1", "cluster", ""])
def test_tokens_travel_over_https_only(server):
    with pytest.raises(InputError, match="https"):
        KubeApi(server, TOKEN)


def test_a_kubeconfig_leads_to_the_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes.shutil, "which", lambda _: None)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", cluster.url)))
    assert apply(quota_patch("spark", "executors", pods=7)).after["pods"] == "7"
    (tmp_path / "token").write_text(TOKEN + "\n")
    config = kubeconfig(tmp_path / "config", cluster.url, user={"tokenFile": "token"})
    assert (
        apply(quota_patch("spark", "executors", pods=8), find_cluster(config)).after["pods"] == "8"
    )


def test_kubeconfigs_that_do_not_do(tmp_path):
    path = tmp_path / "config"
    for text, said in (("{", "no YAML"), ("[]", "not a kubeconfig"), ("{}", "no context ''")):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            KubeApi.from_kubeconfig(path)
    with pytest.raises(InputError, match="No such file"):
        KubeApi.from_kubeconfig(tmp_path / "none")
    with pytest.raises(InputError, match="kubectl"):
        KubeApi.from_kubeconfig(kubeconfig(path, "https://c", user={"exec": {"command": "aws"}}))
    with pytest.raises(InputError, match="verify"):
        KubeApi.from_kubeconfig(
            kubeconfig(path, "https://c", cluster={"insecure-skip-tls-verify": True})
        )
    for data, said in (("%%%", "no base64"), (base64.b64encode(b"x").decode(), "no certificate")):
        with pytest.raises(InputError, match=said):
            KubeApi.from_kubeconfig(
                kubeconfig(path, "https://c", cluster={"certificate-authority-data": data})
            )


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A certificate that this address shows and vouches for, and its key."""
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


#: The real one, where there is one.
WAYS = [KubeApi.from_kubeconfig]
if shutil.which("kubectl"):
    WAYS.append(lambda config: Kubectl(shutil.which("kubectl"), str(config)))


@pytest.mark.parametrize("way", WAYS, ids=["api", "kubectl"][: len(WAYS)])
def test_limits_and_notes_over_tls(way, authority, tmp_path):
    plan = quota_patch("spark", "executors", pods=3)
    noted = msgspec.structs.replace(plan, annotations={"gnomon/x": "1"})
    with serving(tls(authority)) as cluster:
        trusted = {"certificate-authority": str(authority / "cert.pem")}
        here = way(kubeconfig(tmp_path / "c", cluster.url, cluster=trusted))
        applied = apply(noted, here)
        assert (applied.before["pods"], applied.after["pods"]) == ("20", "3")
        assert here.read(plan).annotations == {"gnomon/x": "1"}
        gone = msgspec.structs.replace(applied.undo(), annotations={"gnomon/x": None})
        assert apply(gone, here).after == applied.before
        assert here.read(plan).annotations == {}
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403}
        cluster.answer = (403, json.dumps(status | {"message": "not yours"}).encode())
        with pytest.raises(ActuationError, match="not yours"):
            apply(plan, here)


def test_the_authority_of_a_kubeconfig_is_who_is_trusted(authority, tmp_path):
    context = tls(authority)
    plan = quota_patch("spark", "executors", pods=3)
    pem = base64.b64encode((authority / "cert.pem").read_bytes()).decode()
    with serving(context) as cluster:
        for trusted in (
            {"certificate-authority-data": pem},
            {"certificate-authority": str(authority / "cert.pem")},
        ):
            config = kubeconfig(tmp_path / "c", cluster.url, cluster=trusted)
            assert apply(plan, KubeApi.from_kubeconfig(config)).after["pods"] == "3"
        unknown = KubeApi.from_kubeconfig(kubeconfig(tmp_path / "c", cluster.url))
        with pytest.raises(
            ActuationError, match=r"cannot be reached: .*CERTIFICATE_VERIFY_FAILED"
        ):
            apply(plan, unknown)


def test_no_way_to_a_cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes.shutil, "which", lambda _: None)
    monkeypatch.setattr(kubernetes, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InputError, match="no way to a cluster; install kubectl"):
        find_cluster()


def test_from_inside_a_pod(tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes.shutil, "which", lambda _: None)
    monkeypatch.setattr(kubernetes, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(
        ssl, "create_default_context", lambda cadata=None: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "ca.crt").write_text("PEM")
    found = find_cluster()
    assert isinstance(found, KubeApi)
    assert found._server == "https://[fd00::1]:443"
    (tmp_path / "token").write_text("rotated\n")
    assert found._bearer() == "rotated"
    (tmp_path / "token").write_text("\n")
    with pytest.raises(InputError, match="token: no token to show"):
        find_cluster()
    for name in ("token", "ca.crt"):
        (tmp_path / name).unlink()
        with pytest.raises(InputError, match="cannot be read: FileNotFoundError"):
            KubeApi.from_pod()
        (tmp_path / "token").write_text(TOKEN)


def test_a_token_is_read_from_its_file_for_each_request(cluster, tmp_path, monkeypatch):
    """Who issues tokens puts another there before one runs out, within the hour in a pod."""
    place = tmp_path / "token"
    place.write_text(TOKEN + "\n")
    config = kubeconfig(tmp_path / "config", cluster.url, user={"tokenFile": "token"})
    api, plan = KubeApi.from_kubeconfig(config), quota_patch("spark", "executors", pods=1)
    api.read(plan)
    monkeypatch.setattr(fake_cluster, "TOKEN", "rotated")
    with pytest.raises(ActuationError, match="401"):
        api.read(plan)
    place.write_text("rotated\n")
    assert api.patch(plan).hard["pods"] == "1"
    place.write_text("")
    with pytest.raises(ActuationError, match="token: no token to show"):
        api.read(plan)
    place.unlink()
    with pytest.raises(ActuationError, match="token: cannot be read"):  # it may come back
        api.read(plan)


@pytest.fixture
def fake_kubectl(tmp_path, monkeypatch):
    """A kubectl that notes what it is asked, and answers with what a file says."""
    program = tmp_path / "kubectl"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys, pathlib\n"
        "here = pathlib.Path(__file__).parent\n"
        "with (here / 'asked').open('a') as file: file.write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "if (here / 'refuses').exists(): sys.exit('error: forbidden')\n"
        "hard = {'pods': '9'}\n"
        "if 'patch' in sys.argv: hard |= json.loads(sys.argv[sys.argv.index('-p') + 1])['spec']['hard']\n"
        "print(json.dumps({'spec': {'hard': hard}}))\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_kubectl_is_used_where_it_is(fake_kubectl):
    way = find_cluster()
    assert isinstance(way, Kubectl)
    applied = apply(quota_patch("spark", "executors", pods=2), way)
    assert (applied.before, applied.after) == ({"pods": "9"}, {"pods": "2"})
    asked = [json.loads(line) for line in (fake_kubectl / "asked").read_text().splitlines()]
    assert asked == [
        ["--request-timeout=15s", "-n", "spark", "get", "resourcequota", "executors", "-o", "json"],
        ["--request-timeout=15s", "-n", "spark", "patch", "resourcequota", "executors", "--type=merge", "-p",
         '{"spec":{"hard":{"pods":"2"}}}', "-o", "json"],
    ]  # fmt: skip
    (fake_kubectl / "refuses").touch()
    with pytest.raises(ActuationError, match="kubectl refused: error: forbidden"):
        apply(quota_patch("spark", "executors", pods=2), way)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [(403, "Forbidden", QuotaRefused), (404, "NotFound", QuotaGone),
     (409, "Conflict", QuotaRefused), (408, "Timeout", ActuationError),
     (500, "InternalError", ActuationError), (504, "Timeout", ActuationError)],
)  # fmt: skip
def test_what_was_surely_not_done(cluster, fake_kubectl, code, reason, kind):
    """A server that ran out of time may have done it."""
    cluster.answer = (code, b"{}")
    plan = quota_patch("spark", "executors", pods=1)
    with pytest.raises(ActuationError) as by_api:
        KubeApi(cluster.url, TOKEN).patch(plan)
    said = f"Error from server ({reason}): resourcequotas x"
    program = f"#!{sys.executable}\nimport sys\nsys.exit({said!r})\n"
    (fake_kubectl / "kubectl").write_text(program)
    with pytest.raises(ActuationError) as by_kubectl:
        find_cluster().patch(plan)
    assert type(by_api.value) is type(by_kubectl.value) is kind


def test_a_kubectl_that_cannot_be_run(tmp_path):
    with pytest.raises(ActuationError, match="cannot be run"):
        apply(quota_patch("n", "q", pods=1), Kubectl(str(tmp_path / "none")))
