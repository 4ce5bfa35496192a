"""Icons: paths of 24 by 24, drawn in the page because a strict policy for content allows no other sprites."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

_PATHS: Final = {
    "overview": "M3 12h4l3-8 4 16 3-8h4",
    "brokers": "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
    "topics": "M4 6h16M4 12h16M4 18h10",
    "groups": (
        "M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21v-2a5 5 0 0 1 5-5h4a5 5 0 0 1 5 5v2"
        "M17 3.5a4 4 0 0 1 0 7M22 21v-2a5 5 0 0 0-4-4.9"
    ),
    "messages": "M3 5h18v14H3zM3 6l9 7 9-7",
    "tail": "M4 5v14M8 8l8 4-8 4zM20 5v14",
    "traces": "M3 6h8M7 12h10M13 18h8",
    "deadletters": "M4 8h16l-1 12H5zM9 8V4h6v4M10 12v4M14 12v4",
    "delayed": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
    "transactions": "M4 8h14l-3-3M20 16H6l3 3",
    "alarms": "M6 16V11a6 6 0 1 1 12 0v5l2 2H4zM10 21h4",
    "doctor": (
        "M12 21C5 16 3 12 3 8.5A4.5 4.5 0 0 1 12 7a4.5 4.5 0 0 1 9 1.5C21 12 19 16 12 21zM7 12h3l1.5-3 2 5 1-2H17"
    ),
    "accounts": "M15 7a4 4 0 1 1-3.5 6L7 17.5V20H4v-3l6.2-6.2A4 4 0 0 1 15 7zM16 10h.01",
    "users": "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21v-1a6 6 0 0 1 6-6h4a6 6 0 0 1 6 6v1",
    "audit": "M6 3h9l4 4v14H6zM14 3v5h5M9 13h7M9 17h5",
    "api": "M8 6l-5 6 5 6M16 6l5 6-5 6M13 4l-2 16",
    "search": "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM21 21l-5-5",
    "star": "M12 3l2.7 5.8 6.3.8-4.6 4.4 1.2 6.3L12 17.2 6.4 20.3 7.6 14 3 9.6l6.3-.8z",
    "plus": "M12 5v14M5 12h14",
    "edit": "M4 20h4L19 9l-4-4L4 16zM14 6l4 4",
    "trash": "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
    "copy": "M9 9h11v11H9zM5 15H4V4h11v1",
    "download": "M12 4v11M7 11l5 5 5-5M4 20h16",
    "check": "M5 13l4 4L19 7",
    "warning": "M12 4l9 16H3zM12 10v4M12 17h.01",
    "error": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9 9l6 6M15 9l-6 6",
    "info": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8h.01",
    "menu": "M4 7h16M4 12h16M4 17h16",
    "close": "M6 6l12 12M18 6L6 18",
    "theme": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 3v18M12 8h5M12 12h8M12 16h5",
    "help": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.5 9.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .9-1 1.7M12 17h.01",
    "language": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18",
    "logout": "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
    "refresh": "M20 11a8 8 0 1 0-2 6M20 5v6h-6",
    "pause": "M8 5v14M16 5v14",
    "play": "M7 5l11 7-11 7z",
    "up": "M6 15l6-6 6 6",
    "down": "M6 9l6 6 6-6",
    "left": "M15 6l-6 6 6 6",
    "right": "M9 6l6 6-6 6",
    "external": "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
    "filter": "M4 5h16l-6 8v6l-4-2v-4z",
    "send": "M21 3L10 14M21 3l-7 18-4-7-7-4z",
    "upload": "M12 16V5M7 9l5-5 5 5M4 20h16",
    "tree": "M5 4v14h5M5 10h5M13 7h7v6h-7zM13 15h7v6h-7z",
    "undo": "M4 9h10a6 6 0 0 1 0 12h-4M8 5L4 9l4 4",
    "settings": (
        "M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM4 12h2M18 12h2M12 4v2M12 18v2M6.3 6.3l1.4 1.4"
        "M16.3 16.3l1.4 1.4M6.3 17.7l1.4-1.4M16.3 7.7l1.4-1.4"
    ),
    "lock": "M6 11h12v9H6zM8 11V8a4 4 0 0 1 8 0v3",
    "clock": "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
}


def draw_icon(name: str, *, filled: bool = False) -> Markup:
    """Return an icon; it is decoration, so screen readers skip it."""
    kind = "icon filled" if filled else "icon"
    return Markup('<svg class="{}" viewBox="0 0 24 24" aria-hidden="true"><path d="{}"/></svg>').format(
        kind, _PATHS[name]
    )
