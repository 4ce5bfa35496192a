"""Templates: loaded once, escaped always, with the functions that all of them use."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from eruca._console.pages import charts, times
from eruca._console.pages.icons import draw_icon
from eruca._console.pages.static import find_static, load_static
from eruca._console.pages.texts import LANGUAGES, Texts, texts_of
from eruca._console.pages.visit import Visit, make_url


@cache
def make_environment() -> Environment:
    """Return the environment of all templates."""
    environment = Environment(
        loader=PackageLoader("eruca._console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    environment.filters.update(
        number=times.show_number,
        short=times.show_short,
        bytes=times.show_bytes,
        percent=times.show_percent,
        rate=times.show_rate,
        duration=_show_duration,
        exact=times.show_exact,
    )
    environment.globals.update(
        icon=draw_icon,
        static=find_static,
        make_url=make_url,
        languages=LANGUAGES,
        meter=charts.draw_meter,
        spark=charts.draw_spark,
        bars=charts.draw_bars,
        line=charts.draw_line,
        legend=charts.draw_legend,
        is_markup=lambda value: isinstance(value, Markup),
    )
    return environment


def load_files() -> None:
    """Read templates, texts and static files, so that no request waits for the disk. Blocks."""
    environment = make_environment()
    for name in environment.list_templates():
        environment.get_template(name)
    for language in LANGUAGES:
        texts_of(language)
    load_static()


def render(visit: Visit, template: str, context: dict[str, Any]) -> str:
    """Return a whole page."""
    return make_environment().get_template(template).render(_make_context(visit, context))


def render_block(visit: Visit, template: str, context: dict[str, Any], block: str = "content") -> str:
    """Return one block of a page, for htmx and for events."""
    page = make_environment().get_template(template)
    made = page.new_context(_make_context(visit, context))
    return "".join(page.blocks[block](made))


def render_part(visit: Visit, part: str, *arguments: Any) -> str:
    """Return what a macro makes, for events: `render_part(visit, "topics/parts.html:rates", figures)`."""
    name, _, macro = part.partition(":")
    page = make_environment().get_template(name)
    module = page.make_module(_make_context(visit, {}))
    return str(getattr(module, macro)(*arguments))


def _make_context(visit: Visit, context: dict[str, Any]) -> dict[str, Any]:
    texts = visit.texts
    return {"visit": visit, "t": texts, "ago": lambda moment: draw_time(texts, moment), **context}


@pass_context
def _show_duration(context: Context, value: timedelta | float | None) -> str:
    texts: Texts = context["t"]
    return times.show_duration(texts, value)


def draw_time(texts: Texts, moment: datetime | None) -> Markup:
    """Return a time as how long ago it is, with the exact one in its title; app.js keeps it current."""
    if moment is None:
        return escape(times.NONE)
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(
        moment.isoformat(), times.show_exact(moment), times.show_ago(texts, moment)
    )
