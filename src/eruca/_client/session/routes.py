"""Routes of topics: fetched from name servers, cached, and refreshed periodically and after failures."""

from __future__ import annotations

import asyncio
import difflib
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

from eruca._client.session.calls import Calls, explain_refusal
from eruca._client.session.outages import Outages
from eruca._client.session.route import Route, make_route, merge_routes
from eruca._ground.backoff import Backoff
from eruca._ground.limits import ROUTE_BYTES_MAX
from eruca._net.addresses import NameServers
from eruca._net.arrivals import Arrivals
from eruca._wire.bodies import MessageQueue, TopicList, TopicRouteData
from eruca._wire.catalog import decode_answer
from eruca._wire.codes import RequestCode, ResponseCode
from eruca._wire.frame import Command, make_request
from eruca._wire.headers import EmptyHeader, RouteHeader
from eruca._wire.names import MASTER_ID, TEMPLATE_TOPIC
from eruca.errors import ConnectFailed, ErucaError, NetError, NoRoute, WireError

log = logging.getLogger(__name__)

TEMPLATE_QUEUES = 4
_NAMES_SHOWN = 3
# Comparing names takes microseconds each, and a large cluster has very many topics.
_NAMES_COMPARED = 2000
# How soon after its first message the real route of a topic is fetched: with one broker, and with several.
_LEARN_ALONE_S = 0.1
_LEARN_S = 1.0
_LEARN_S_MAX = 10.0
# How long a name server that did not answer is left out where all are asked.
_SILENT_S = 10.0

# The name of their common outage: one name server that answers is enough.
NAME_SERVERS = "the name servers"

_T = TypeVar("_T")


class Routes:
    """The routes a session uses."""

    def __init__(self, calls: Calls, nameservers: NameServers, timeout_ms: int, outages: Outages | None = None) -> None:
        self._calls = calls
        self._outages = outages or Outages()
        self._nameservers = nameservers
        self._timeout_ms = timeout_ms
        self._routes: dict[str, Route] = {}
        self._asking: dict[str, asyncio.Task[Route | None]] = {}
        self._explaining: dict[str, asyncio.Task[NoRoute]] = {}
        self._learning: set[str] = set()
        # Sends that wait for the route of a topic.
        self._arrivals: dict[str, Arrivals] = {}
        # Topics that consumers wait for and that do not exist yet.
        self._watched: dict[str, int] = {}
        # Set when such a topic is added.
        self.wanted = asyncio.Event()
        # The name server that answered last; it is asked first next time.
        self._current = ""
        self._addresses: dict[str, dict[int, str]] = {}
        # Until when name servers that did not answer are left out where all are asked, by address.
        self._silent_until_s: dict[str, float] = {}
        #: The addresses of the masters, by the name of the broker.
        self.masters: dict[str, str] = {}
        # Called with each topic whose route has changed.
        self.on_change: list[Callable[[str], None]] = []

    # -- what is known -----------------------------------------------------------------------------------------------

    def peek(self, topic: str) -> Route | None:
        """Return the route of a topic if it is known, without asking."""
        return self._routes.get(topic)

    def peek_for_send(self, topic: str) -> Route | None:
        """Return the route for a send if it is known and no earlier send still waits for it."""
        found = self._routes.get(topic)
        return found if found is not None and found.write_queues and topic not in self._arrivals else None

    def _get_writable(self, topic: str) -> Route | None:
        found = self._routes.get(topic)
        return found if found is not None and found.write_queues else None

    def list_brokers(self) -> dict[str, dict[int, str]]:
        """Return the addresses of all brokers of all known topics, by name and id."""
        return self._addresses

    def find_address(self, broker: str, broker_id: int = MASTER_ID, *, only_this: bool = False) -> str | None:
        """Return an address of a broker: the requested one, otherwise the next slave, otherwise any."""
        known = self._addresses.get(broker)
        if not known:
            return None
        address = known.get(broker_id)
        if address is None and not only_this:
            address = known.get(broker_id + 1) or next(iter(known.values()))
        return address

    def has_lost_master(self) -> bool:
        """Return whether some broker has slaves but no master."""
        return any(MASTER_ID not in by_id for by_id in self._addresses.values())

    def require_address(self, broker: str, broker_id: int = MASTER_ID) -> str:
        """Return an address of a broker, as `find_address` does. Raises ConnectFailed if there is none."""
        address = self.find_address(broker, broker_id)
        if address is None:
            raise ConnectFailed(f"broker {broker} currently has no address")
        return address

    def find_filter_server(self, topic: str, broker: str) -> str | None:
        """Return the address of any filter server of a broker, or None if it has none."""
        route = self._routes.get(topic)
        by_id = self._addresses.get(broker, {})
        known = [] if route is None else [at for own in by_id.values() for at in route.filter_servers.get(own, ())]
        return random.choice(known) if known else None

    def watch(self, topic: str) -> None:
        """Keep the route of a topic fresh from now on, even if the topic does not exist yet."""
        self._watched[topic] = self._watched.get(topic, 0) + 1
        self.wanted.set()

    def unwatch(self, topic: str) -> None:
        """Undo `watch`."""
        self._watched[topic] = self._watched.get(topic, 0) - 1
        if self._watched[topic] <= 0:
            del self._watched[topic]

    def list_missing(self) -> list[str]:
        """Return the topics that consumers wait for and that do not exist yet."""
        return [topic for topic in self._watched if not self._is_real(topic)]

    # -- asking ------------------------------------------------------------------------------------------------------

    async def get(self, topic: str) -> Route:
        """Return the route of a topic. Raises NoRoute with the reason if there is none."""
        found = self._routes.get(topic)
        if found is not None and not found.is_template:
            return found
        return await self.refresh(topic)

    async def get_for_send(self, topic: str) -> Route:
        """Return the route for a send: that of the template if the topic does not exist yet."""
        if (found := self.peek_for_send(topic)) is not None:
            return found
        # Earlier sends that waited for the route go first; otherwise messages would overtake each other.
        arrivals = self._arrivals.setdefault(topic, Arrivals())
        try:
            # There was no master to write to; by now there may be a new one.
            return await arrivals.take(lambda: self._get_writable(topic), lambda: self.refresh_for_send(topic))
        finally:
            if not arrivals.waiting:
                self._arrivals.pop(topic, None)

    async def refresh_for_send(self, topic: str) -> Route:
        """Fetch the route for sends again now. As with `refresh`, a known route stays in use on failure."""
        found = await self._ask_once(topic)
        if found is not None:
            return found
        template = None if self._is_real(topic) else await self._ask_once(TEMPLATE_TOPIC)
        if template is None:
            raise await self._explain_once(topic)
        if self._is_real(topic):  # another task fetched it meanwhile
            return self._routes[topic]
        queues = tuple(
            MessageQueue(queue.broker_name, queue.queue_id, topic)
            for queue in template.write_queues
            if queue.queue_id < TEMPLATE_QUEUES
        )
        return self._keep(Route(topic, queues, queues, template.brokers, is_template=True, clusters=template.clusters))

    def _is_real(self, topic: str) -> bool:
        known = self._routes.get(topic)
        return known is not None and not known.is_template

    async def refresh(self, topic: str) -> Route:
        """Fetch the route of a topic again now. Raises NoRoute, but a known route stays in use."""
        found = await self._ask_once(topic)
        if found is None:
            raise await self._explain_once(topic)
        return found

    async def refresh_all(self) -> None:
        """Fetch the routes of all topics in use again; those that cannot be fetched stay as they are."""
        await self.refresh_each({*self._routes, *self._watched})

    async def refresh_missing(self) -> None:
        """Fetch the routes of topics that consumers wait for and that did not exist so far."""
        await self.refresh_each(self.list_missing())

    async def refresh_each(self, topics: Iterable[str]) -> None:
        """Fetch the routes of these topics again; failures are logged."""
        for topic in topics:
            try:
                known = self._routes.get(topic)
                # The template may have other brokers by now.
                await (self.refresh_for_send(topic) if known and known.is_template else self._ask_once(topic))
            except NoRoute:
                continue  # topics are no longer created automatically there
            except NetError as error:
                self._outages.report(log, NAME_SERVERS, error, "routes could not be fetched: %s", error)
                return
            except ErucaError as error:
                log.warning("the route of %s could not be fetched: %s", topic, error)

    def is_learning(self, topic: str) -> bool:
        """Return whether `learn` is running for a topic."""
        return topic in self._learning

    async def learn(self, topic: str) -> None:
        """Replace the route of a template by the real one, which exists soon after the first message creates the topic.

        With several brokers this waits a little: each creates the topic on its own first message, and a route that
        is fetched too early would contain only the first broker.
        """
        self._learning.add(topic)
        try:
            is_alone = len({queue.broker_name for queue in self._routes[topic].write_queues}) <= 1
            backoff = Backoff(_LEARN_ALONE_S if is_alone else _LEARN_S, _LEARN_S_MAX, jitter=0.0)
            tries = 1
            while (known := self._routes.get(topic)) is not None and known.is_template:
                pause_s = backoff.after(tries)
                if pause_s >= _LEARN_S_MAX:
                    break
                await asyncio.sleep(pause_s)
                await self._ask_once(topic)
                tries += 1
        except ErucaError as error:
            log.info("the route of %s is still the route of its template: %s", topic, error)
        finally:
            self._learning.discard(topic)

    async def _ask_once(self, topic: str) -> Route | None:
        """Fetch a route, or wait for a fetch already under way; returns None if the topic does not exist."""
        return await self._share(self._asking, topic, self._ask)

    async def _explain_once(self, topic: str) -> NoRoute:
        return await self._share(self._explaining, topic, self._explain_missing)

    async def _share(
        self, shared: dict[str, asyncio.Task[_T]], topic: str, ask: Callable[[str], Coroutine[None, None, _T]]
    ) -> _T:
        task = shared.get(topic)
        if task is None:
            task = shared[topic] = asyncio.get_running_loop().create_task(ask(topic))

            def forget(done: asyncio.Task[_T]) -> None:
                del shared[topic]
                if not done.cancelled():
                    done.exception()  # retrieved here because there may be no waiter left

            task.add_done_callback(forget)
        return await asyncio.shield(task)

    async def _ask(self, topic: str) -> Route | None:
        data = _read_route(*await self.ask_nameserver(lambda: _request_route(topic)))
        # Keep a known route: a name server that just started does not know the brokers yet, and they still work.
        return None if data is None else self._keep(make_route(topic, data))

    async def refresh_everywhere(self, topic: str) -> Route:
        """Fetch the route from every name server, as they may know different brokers. Raises NoRoute."""
        answers = await self.ask_every_nameserver(lambda: _request_route(topic))
        found = [data for answer in answers if (data := _read_route(*answer)) is not None]
        if not found:
            raise await self._explain_once(topic)
        return self._keep(make_route(topic, merge_routes(found)))

    async def ask_nameserver(self, build: Callable[[], Command]) -> tuple[str, Command]:
        """Ask the name servers, starting with the one that answered last; returns the server and its answer."""
        addresses = await self.list_nameservers()
        random.shuffle(addresses)
        addresses.sort(key=lambda address: address != self._current)
        failures = []
        # A silent server must leave time to ask the others before the waiting sends time out.
        timeout_ms = max(1, self._timeout_ms // len(addresses))
        for address in addresses:
            try:
                answer = await self._calls.call(address, build(), timeout_ms)
            except NetError as error:
                failures.append(str(error.args[0]))
                continue
            self._current = address
            self._outages.end(NAME_SERVERS)
            return address, answer
        raise NetError(
            f"no name server answers: {'; '.join(failures)}", hint="is one running? `eruca up` starts one on port 9876"
        )

    async def ask_every_nameserver(self, build: Callable[[], Command]) -> list[tuple[str, Command]]:
        """Ask all name servers side by side; returns those that answer, in the order of the list, and their answers.

        One that is silent is left out for a while, so that not every question waits for it. Raises NetError if none
        answers.
        """
        addresses = await self.list_nameservers()
        now_s = asyncio.get_running_loop().time()
        asked = [address for address in addresses if self._silent_until_s.get(address, now_s) <= now_s]
        timeout_ms = max(1, self._timeout_ms // len(addresses))

        async def ask(address: str) -> Command | None:
            try:
                return await self._calls.call(address, build(), timeout_ms)
            except NetError:
                self._silent_until_s[address] = asyncio.get_running_loop().time() + _SILENT_S
                return None

        if len(addresses) > 1:
            answers = await asyncio.gather(*[ask(address) for address in asked])
            found = [(address, each) for address, each in zip(asked, answers, strict=True) if each is not None]
            if found:
                self._outages.end(NAME_SERVERS)
                return found
        return [await self.ask_nameserver(build)]

    async def list_nameservers(self) -> list[str]:
        """Return the addresses of all name servers. Raises NetError if none is configured."""
        await self._nameservers.refresh()
        addresses = list(self._nameservers.addresses)
        if not addresses:
            raise _explain_unnamed()
        return addresses

    def _keep(self, route: Route) -> Route:
        before = self._routes.get(route.topic)
        moved = any(self._addresses.get(name) != found for name, found in route.brokers.items())
        if before == route and not moved:
            return before
        self._routes[route.topic] = route
        # The newest answer has the current address of a broker that moved; brokers in no route are forgotten.
        named = {name for known in self._routes.values() for name in known.brokers}
        newest = {**self._addresses, **route.brokers}
        self._addresses = {name: found for name, found in newest.items() if name in named}
        self.masters = {name: found[MASTER_ID] for name, found in self._addresses.items() if MASTER_ID in found}
        for tell in self.on_change:
            tell(route.topic)
        return route

    async def _explain_missing(self, topic: str) -> NoRoute:
        """Find out why a topic has no route, so that the error can say what to do about it."""
        hints = []
        automatic = True
        server = self._current
        try:
            code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            answers = await self.ask_every_nameserver(lambda: make_request(code, EmptyHeader()))
            server = answers[0][0]
            bodies = [decode_answer(code, answer)[1] for _, answer in answers]
            lists = [body.topic_list for body in bodies if isinstance(body, TopicList)]
            names = sorted({name for each in lists for name in each}) if lists else None
        except ErucaError:
            names = None
        if names is not None:
            if not names:
                hints.append(f"no broker is registered with it: eruca broker -n {server} starts one")
            elif TEMPLATE_TOPIC not in names:
                hints.append("its brokers do not create topics automatically")
                automatic = False
            near = difflib.get_close_matches(topic, names[:_NAMES_COMPARED], _NAMES_SHOWN)
            if near:
                hints.append(f"did you mean {' or '.join(near)}?")
        create = f"eruca topic create -n {server} {topic}"
        if automatic:
            hints.append(f"the first message to it creates it: eruca send -n {server} {topic} BODY, or {create}")
        else:
            hints.append(f"{create} creates it")
        what = "has no route anymore" if topic in self._routes else "has no route"
        error = NoRoute(f"topic {topic} {what}: name server {server} does not know it", hint="; ".join(hints))
        # Without a broker, or with one that registered meanwhile, the next answer may differ.
        error.retryable = names is not None and (not names or topic in names or TEMPLATE_TOPIC in names)
        return error


def _request_route(topic: str) -> Command:
    return make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic))


def _read_route(server: str, answer: Command) -> TopicRouteData | None:
    """Return the route that a name server has; None if it knows no such topic."""
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise explain_refusal(answer, f"name server {server}")
    if len(answer.body) > ROUTE_BYTES_MAX:
        raise WireError(f"name server {server} answered with a route of {len(answer.body)} bytes")
    data = decode_answer(RequestCode.GET_ROUTEINFO_BY_TOPIC, answer)[1]
    if not isinstance(data, TopicRouteData):
        raise WireError(f"name server {server} answered without a route")
    return data


def _explain_unnamed() -> NetError:
    error = NetError(
        "no name server is configured",
        hint='pass its address, for example Producer("127.0.0.1:9876", ...), or set NAMESRV_ADDR',
    )
    error.retryable = False
    return error
