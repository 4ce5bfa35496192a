"""Answers of a broker that are lost after the message was stored."""

from __future__ import annotations

import pytest

from eruca._broker.sending.answering import Place, SendAnswers
from eruca._net.link import Link
from eruca._wire.frame import Command


class Loss:
    """Cuts the connection after a message is stored, as often as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = self.lost = 0
        answer = SendAnswers.answer

        def lose(
            answers: SendAnswers, link: Link, command: Command, place: Place, waits: bool, *topics: str
        ) -> bytes | None:
            if self.left:
                self.left -= 1
                self.lost += 1
                link.abort()
                return None
            return answer(answers, link, command, place, waits, *topics)

        monkeypatch.setattr(SendAnswers, "answer", lose)
