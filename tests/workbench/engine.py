"""A tiny OpenAI-compatible engine in a thread: answers are a function of model and prompt."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = str | int | bytes | dict[str, Any]
"""An answer's text, an HTTP status, a raw body, or a whole choice."""


class Engine:
    """What was asked of a running engine, and where it is."""

    def __init__(self, answer: Callable[[str, str], Reply]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def reply(self, path: str, asked: dict[str, Any]) -> tuple[int, bytes]:
        """Return status and body."""
        is_chat = path.endswith("/chat/completions")
        prompt = asked["messages"][-1]["content"] if is_chat else asked["prompt"]
        said = self.answer(asked["model"], prompt)
        if isinstance(said, int):
            return said, b"as told"
        if isinstance(said, bytes):
            return 200, said
        if isinstance(said, str):
            text = {"message": {"content": said}} if is_chat else {"text": said}
            said = {**text, "finish_reason": "stop"}
        return 200, json.dumps({"choices": [said]}).encode()


@contextmanager
def serving(answer: Callable[[str, str], Reply], *, withheld: int = 0) -> Iterator[Engine]:
    """Run an engine while the block lasts; ``withheld`` bytes are announced and never come."""
    engine = Engine(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.requests.append(asked)
            engine.paths.append(self.path)
            engine.headers.append(dict(self.headers))
            status, body = engine.reply(self.path, asked)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{engine.url}/elsewhere")
            if status == 429:
                self.send_header("Retry-After", "7")
            self.send_header("Content-Length", str(len(body) + withheld))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    engine.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
