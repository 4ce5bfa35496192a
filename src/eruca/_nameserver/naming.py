"""Checks of names and addresses in a registration: invalid ones are refused before they become keys of a table."""

from __future__ import annotations

from eruca._ground.limits import FILTER_SERVERS_MAX, LABEL_CHARS_MAX
from eruca._wire.bodies import RegisterBrokerBody
from eruca._wire.codes import ResponseCode
from eruca._wire.headers import RegisterBrokerHeader
from eruca._wire.names import check_label
from eruca.errors import InvalidName, RequestRefused


def check_names(header: RegisterBrokerHeader, body: RegisterBrokerBody) -> None:
    """Refuse an invalid name or address of a broker, or of its filter servers."""
    try:
        check_label("broker name", header.broker_name)
        check_label("cluster name", header.cluster_name)
        check_label("broker address", header.broker_addr)
        for address in body.filter_server_list:
            check_label("address of a filter server", address)
    except InvalidName as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if len(header.ha_server_addr) > LABEL_CHARS_MAX:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "haServerAddr is too long")
    if len(body.filter_server_list) > FILTER_SERVERS_MAX:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"a broker has at most {FILTER_SERVERS_MAX} filter servers")
