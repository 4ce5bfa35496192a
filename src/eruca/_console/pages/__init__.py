"""What every page of the console uses. How a page is made, in five steps:

1. **Declare its routes** in `_console/<subject>/pages.py`, and add the module to `_console/routes.py`:

       ROUTES = (
           Route("/c/{cluster}/topics", list_topics, Need.VIEW, nav=Nav("data", 10, "nav.topics", "topics", "t"),
                 summary="List topics."),
           Route("/c/{cluster}/topics/{topic}/delete", delete_topic, Need.OPERATE, ("GET", "POST"),
                 names={"topic": "topic"}, summary="Delete a topic."),
       )

   `names` says which parameters (of the path, the form or the query) are topics and groups: the frame checks the rights
   of the user to them before the handler runs. A path under `/c/` has a twin under `/api/c/` for JSON, and is in the
   OpenAPI document.

2. **Write the handler**: `async def list_topics(visit: Visit) -> Shown | Response`. It asks `visit.admin`, and returns
   `visit.show("topics/detail.html", value, **context)`; `value` (structs, maps, lists) is what the API returns, and
   `value` in the template. Raise `ErucaError` or `HTTPException(404, text)`: the frame makes a page of it. Expensive
   answers go through `visit.cluster.recent.ask(key, question)`, so that many visitors ask once.
   Independent questions run together: `await asyncio.gather(...)`.

3. **A list** is `make_table(visit, "topics", COLUMNS, rows, ...)` and `show_table(visit, template, table)` (tables.py):
   filter, order, pages, CSV and JSON. **A change** is `read_fields` and `change` (forms.py): preview, confirmation,
   the command, the audit log. **What is live** is `visit.parts.streams.answer(visit, events)` (live.py); **charts** are
   in charts.py; **a command** to copy is `visit.command("topic", "show", name)`.

4. **Write the template** in `_console/templates/<subject>/`:

       {% extends frame %}
       {% import "parts/ui.html" as ui with context %}
       {% block title %}{{ t("topics.title") }}{% endblock %}
       {% block content %}
       {% call ui.head(t("topics.title")) %}<a class="button primary" href="...">{{ t("...") }}</a>{% endcall %}
       {{ ui.table(table) }}
       {% endblock %}

   parts/ui.html has all pieces: `head`, `table`, `form`, `facts`, `card`, `stat`, `tag`, `command`, `empty`, `notice`,
   `problems`. No inline script, no inline style: the policy for content forbids them. Times are `{{ ago(moment) }}`,
   numbers `{{ count|number }}`, `|short`, `|bytes`, `|rate`, `|duration`, `|percent`.

5. **Write the texts** in `_console/locale/en/<subject>.json` and `locale/zh/<subject>.json`, with the same keys. A test
   compares them.
"""
