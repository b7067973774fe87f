"""Real servers in a tier: nginx, Redis, memcached, each with its own small configuration."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.act.local.layout import Node
from gnomon.act.local.replica import Replica, wait_until
from gnomon.errors import ActuationError, InputError
from gnomon.graph.application import Server

#: Programs; the distribution's packages are called the same.
_PROGRAMS = {"nginx": "nginx", "redis": "redis-server", "memcached": "memcached"}
# What cells ask stores for, as in native/cell/store.hpp.
_KEY, _VALUE = "gnomon", "0123456789abcdef" * 2


def find_program(server: Server) -> str:
    """The program of a real server."""
    # Debian keeps servers where only root looks.
    for path in (None, "/usr/sbin:/usr/local/sbin"):
        if found := shutil.which(_PROGRAMS[server], path=path):
            return found
    raise InputError(f"there is no {_PROGRAMS[server]} on this machine",
                     hint=f"install the distribution's {_PROGRAMS[server]}")  # fmt: skip


def start_server(replica: Replica, server: Server, workers: int) -> None:
    """Starts a server on a free port and waits until it takes connections."""
    program = find_program(server)
    # Between our look and its start somebody else may take the port.
    for attempt in range(3):
        replica.port = _free_port()
        replica.launch(_command(replica, server, program, workers))
        try:
            wait_until(lambda: _connects(replica.port), replica)
            break
        except ActuationError:
            if attempt == 2 or not replica.has_ended():
                raise
    if server == "redis":
        _tell(replica, f"SET {_KEY} {_VALUE}\r\n", "+OK")
    elif server == "memcached":
        _tell(replica, f"set {_KEY} 0 0 {len(_VALUE)}\r\n{_VALUE}\r\n", "STORED")


def write_nginx_config(
    replica: Replica,
    nodes: Sequence[Node],
    service: str,
    upstreams: Mapping[str, Sequence[str]],
) -> None:
    """Every call of the service becomes a location that passes on to the cells called next."""
    groups, locations = [], []
    names = {name: f"upstream_{index}" for index, name in enumerate(upstreams)}
    for name, addresses in upstreams.items():
        servers = "".join(f" server {address} max_fails=0;" for address in addresses)
        groups.append(
            f"upstream {names[name]} {{{servers or ' server 127.0.0.1:9 down;'} keepalive 256;"
            " keepalive_requests 100000000; }"
        )
    for node in nodes:
        if node.call.service != service:
            continue
        below = [nodes[number] for stage in node.stages for number in stage]
        act = "return 200 'ok';"
        if below:
            act = f"proxy_pass http://{names[below[0].call.service]}/call/{below[0].id};"
        locations.append(f"location = /call/{node.id} {{ {act} }}")
    temporary = "".join(
        f"{kind}_temp_path {replica.folder};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = f"""
user root; daemon off; worker_processes 1; pid {replica.folder}/{replica.name}.pid;
error_log stderr error;
events {{ worker_connections 16384; }}
http {{
  access_log off; tcp_nodelay on; keepalive_requests 100000000; keepalive_timeout 3600;
  proxy_http_version 1.1; proxy_set_header Connection ""; {temporary}
  {" ".join(groups)}
  server {{ listen 127.0.0.1:{replica.port} backlog=4096; default_type text/plain;
    {" ".join(locations)} }}
}}
"""
    _config(replica).write_text(text)


def reload_nginx(replica: Replica) -> None:
    """Takes up the written configuration; workers with the old one finish their requests."""
    if replica.process is not None:
        replica.process.send_signal(signal.SIGHUP)


def _command(replica: Replica, server: Server, program: str, workers: int) -> list[str]:
    folder, port = str(replica.folder), str(replica.port)
    if server == "nginx":
        # The port is new, the rest has been written before.
        text = re.sub(
            r"listen 127.0.0.1:\d+", f"listen 127.0.0.1:{port}", _config(replica).read_text()
        )
        _config(replica).write_text(text)
        return [program, "-e", "stderr", "-p", folder, "-c", str(_config(replica))]
    if server == "redis":
        return [program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                "--dir", folder, "--tcp-backlog", "511", "--loglevel", "warning"]  # fmt: skip
    return [program, "-l", "127.0.0.1", "-p", port, "-U", "0", "-u", "root", "-t", str(workers)]


def _config(replica: Replica) -> Path:
    return replica.folder / f"{replica.name}.conf"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _tell(replica: Replica, text: str, expected: str) -> None:
    with socket.create_connection(("127.0.0.1", replica.port), timeout=10) as connection:
        connection.sendall(text.encode())
        answer = connection.recv(64).decode(errors="replace")
    if not answer.startswith(expected):
        raise ActuationError(f"{replica.name} answered {answer.strip()!r}")
