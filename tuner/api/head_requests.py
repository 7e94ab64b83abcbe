"""Responses to HEAD: the headers of the response to GET (RFC 9110, section 9.3.2)."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadMiddleware:
    """Middleware that answers HEAD with the response to GET without its body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request as an ASGI application."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}
        answered = False

        async def headed(message: Message) -> None:
            """Send the head and an empty body; the rest of a stream is discarded."""
            nonlocal answered
            if message["type"] == "http.response.start":
                scope["route"] = asked.get("route")
                await send(message)
            elif not answered:
                answered = True
                await send({"type": "http.response.body", "body": b""})

        await self.app(asked, receive, headed)
