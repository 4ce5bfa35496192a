"""Metrics and health of the servers of one process over HTTP: `/metrics`, `/healthz`, `/readyz`.

Figures are collected when somebody asks, in slices, so that sends and pulls hardly notice. Answers within a second
share one collection, however many ask.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from eruca._ground.repeating import Repeating
from eruca._net.metricsoptions import NO_PORT, MetricsOptions
from eruca._net.tls import ServerTls
from eruca._net.tlsoptions import TlsMode, TlsOptions
from eruca._net.turns import Slices
from eruca._net.web import Page, WebLimits, WebPort, WebRequest
from eruca._observe.exposition import TextFormat, choose_format, write_figures
from eruca._observe.figures import Buckets, Description, Figures, Kind, Observed, bound, read_registry
from eruca._observe.metrics import BROKER, SERVER, Histogram
from eruca._observe.otlp import OtlpExporter, open_exporter
from eruca._observe.process import read_process

log = logging.getLogger(__name__)

_OPTION: Final = "metricsPort"
_PATHS: Final = "/metrics, /healthz, /readyz"
_BEARER: Final = "bearer "
# Requests within this time get the same figures.
_SHARED_SECONDS: Final = 1.0
# A piece of an answer is about this long.
_PIECE_CHARS: Final = 64 * 1024
_LAG_INTERVAL_S: Final = 0.25
_LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_REASONS_MAX: Final = 100

_INFO: Final = Description("eruca_info", Kind.GAUGE, "Always 1; the version is in the label.", ("version",))
_READY: Final = Description("eruca_ready", Kind.GAUGE, "1 while /readyz answers that the servers are ready.")
_LAG: Final = Description(
    "eruca_process_loop_lag_seconds", Kind.HISTOGRAM, "How late the event loop runs something that is due, sampled."
)
_LEFT_OUT: Final = Description(
    "eruca_metrics_left_out",
    Kind.GAUGE,
    "Label sets of a metric that were left out because of metricsMaxLabelSets.",
    ("metric",),
)


class LoopLag:
    """Measures how late the event loop is."""

    def __init__(self) -> None:
        self.histogram = Histogram(_LAG_BOUNDS)
        self._due = 0.0
        self._repeating = Repeating("measuring the event loop", self._measure, lambda: _LAG_INTERVAL_S)

    def start(self) -> None:
        """Start; needs a running loop."""
        self._due = asyncio.get_running_loop().time() + _LAG_INTERVAL_S
        self._repeating.start()

    async def stop(self) -> None:
        """End."""
        await self._repeating.stop()

    async def _measure(self) -> None:
        now = asyncio.get_running_loop().time()
        self.histogram.observe(max(0.0, now - self._due))
        self._due = now + _LAG_INTERVAL_S


class Overview:
    """The figures of a whole process: of its servers, of what peers use of their limits, and of the process."""

    def __init__(self, observed: Mapping[str, Observed], rows_max: int) -> None:
        """`observed` are the servers by name; a reason why one is not ready starts with its name."""
        self._observed = observed
        self._rows_max = rows_max
        self.lag = LoopLag()

    def list_obstacles(self) -> list[str]:
        """List the reasons why the process is not ready."""
        found = [f"{name}: {reason}" for name, server in self._observed.items() for reason in server.list_obstacles()]
        return found[:_REASONS_MAX]

    async def collect(self) -> AsyncIterator[Figures]:
        """Yield all figures; each metric once."""
        left_out: dict[str, int] = {}
        async for figures in self._collect_all():
            bounded = bound(figures, self._rows_max)
            if bounded.left_out:
                left_out[bounded.about.name] = bounded.left_out
            yield bounded
        yield Figures(_LEFT_OUT, [((name,), count) for name, count in left_out.items()])

    async def _collect_all(self) -> AsyncIterator[Figures]:
        from eruca import __version__

        yield Figures(_INFO, [((__version__,), 1)])
        yield Figures(_READY, [((), int(not self.list_obstacles()))])
        yield Figures(_LAG, [((), Buckets(self.lag.histogram.list_buckets(), self.lag.histogram.sum))])
        # In a thread: it reads files of the system.
        for figures in await asyncio.to_thread(lambda: list(read_process())):
            yield figures
        for registry in (SERVER, BROKER):
            for figures in read_registry(registry):
                yield figures
        for server in self._observed.values():
            async for figures in server.collect_figures(self._rows_max):
                yield figures


class MetricsPort:
    """Shows metrics and health over HTTP, and sends metrics to a collector, as the options say."""

    def __init__(
        self,
        options: MetricsOptions,
        observed: Mapping[str, Observed],
        *,
        tls: TlsOptions | None = None,
        shared_s: float = _SHARED_SECONDS,
        limits: WebLimits | None = None,
    ) -> None:
        self._options = options
        self._overview = Overview(observed, options.rows_max)
        self._tls = ServerTls(tls or TlsOptions(), options.bind)
        self._web = WebPort(self.answer, option=_OPTION, tls=self._tls, limits=limits)
        self._shared_s = shared_s
        self._collecting = asyncio.Lock()
        # The last text in each format, and when it was made, by the loop's clock.
        self._texts: dict[TextFormat, tuple[float, Sequence[bytes]]] = {}
        self._exporter: OtlpExporter | None = None
        self._exporting = Repeating(
            "sending metrics to a collector",
            self._export,
            lambda: options.otlp_interval_ms / 1000,
            at_once=True,
            level=logging.WARNING,
        )

    @property
    def address(self) -> str:
        """Where the metrics are, as a URL; empty without a port."""
        if not self._web.port:
            return ""
        scheme = "https" if self._tls.mode is TlsMode.ENFORCING else "http"
        host = f"[{self._options.bind}]" if ":" in self._options.bind else self._options.bind
        return f"{scheme}://{host}:{self._web.port}/metrics"

    # -- starting and stopping ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin to send. Raises ConnectFailed for a port that is taken, ConfigError for a bad option."""
        options = self._options
        try:
            if options.otlp_endpoint:
                self._exporter = await asyncio.to_thread(open_exporter, options.otlp_endpoint)
                self._exporting.start()
            if options.port != NO_PORT:
                await self._tls.start()
                await self._web.start(options.bind, options.port)
            self._overview.lag.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the port."""
        await self._overview.lag.stop()
        await self._exporting.stop()
        await self._web.stop()
        await self._tls.stop()
        if self._exporter is not None:
            await asyncio.to_thread(self._exporter.close)

    def look_again(self) -> None:
        """Check for changes the files that are read while it runs: certificates."""
        self._tls.look_again()

    # -- answering ---------------------------------------------------------------------------------------------------

    async def answer(self, request: WebRequest) -> Page:
        """Return the page at a path."""
        if request.path == "/metrics":
            return await self._show_metrics(request)
        if request.path == "/healthz":
            return _as_json({"status": "ok"})
        if request.path == "/readyz":
            reasons = self._overview.list_obstacles()
            status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
            # They have addresses and names, as metrics do.
            shown = reasons if self._may_read(request) else []
            return _as_json({"ready": not reasons, "reasons": shown}, status)
        if request.path == "/":
            return Page.of_text(_PATHS)
        return Page.of_text(f"no such page; there are {_PATHS}", HTTPStatus.NOT_FOUND)

    async def _show_metrics(self, request: WebRequest) -> Page:
        if not self._may_read(request):
            reason = "this needs the token that metricsToken sets: Authorization: Bearer TOKEN"
            return Page.of_text(reason, HTTPStatus.UNAUTHORIZED, WWW_Authenticate='Bearer realm="eruca"')
        form = choose_format(request.headers.get("accept", ""))
        return Page(await self._get_text(form), form.value)

    def _may_read(self, request: WebRequest) -> bool:
        token = self._options.token
        if not token:
            return True
        authorization = request.headers.get("authorization", "")
        presented = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
        return hmac.compare_digest(presented.encode(), token.encode())

    async def _get_text(self, form: TextFormat) -> Sequence[bytes]:
        """Return the figures as text; those who wait while it is made get the same."""
        loop = asyncio.get_running_loop()
        async with self._collecting:
            known = self._texts.get(form)
            if known is None or loop.time() - known[0] >= self._shared_s:
                pieces = [piece async for piece in self._write(form)]
                known = self._texts[form] = loop.time(), pieces
                loop.call_later(self._shared_s, self._forget, form, pieces)
        return known[1]

    def _forget(self, form: TextFormat, pieces: Sequence[bytes]) -> None:
        """Free the memory of a text that is no longer shared."""
        if form in self._texts and self._texts[form][1] is pieces:
            del self._texts[form]

    async def _write(self, form: TextFormat) -> AsyncIterator[bytes]:
        slices = Slices()
        lines: list[str] = []
        size = 0
        async for figures in self._overview.collect():
            for line in write_figures(figures, form):
                lines.append(line)
                size += len(line)
                if slices.is_over:
                    await slices.rest()
                if size >= _PIECE_CHARS:
                    yield "".join(lines).encode()
                    lines.clear()
                    size = 0
        yield "".join([*lines, form.end]).encode()

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _export(self) -> None:
        assert self._exporter is not None
        figures = [each async for each in self._overview.collect()]
        # Encoded in the thread too.
        await asyncio.to_thread(self._exporter.send, figures)


def _as_json(value: Mapping[str, object], status: HTTPStatus = HTTPStatus.OK) -> Page:
    return Page([json.dumps(value, ensure_ascii=False).encode() + b"\n"], "application/json", status)
