"""Drives a headless Chromium by plain WebDriver requests to chromedriver."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import requests

TIMEOUT_S = 180
POLL_S = 0.05
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Tab:
    """Controls one window of the browser."""

    def __init__(self, url: str, http: requests.Session) -> None:
        self._url = url
        self._http = http

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._http.post(f"{self._url}/{path}", json=body, timeout=TIMEOUT_S)
        answer.raise_for_status()
        return answer.json()["value"]

    def _command(self, name: str, **parameters: Any) -> Any:
        return self._post("goog/cdp/execute", {"cmd": name, "params": parameters})

    def show(self, page: Path, *, width_px: int, scheme: str = "light", medium: str = "screen") -> Self:
        """Open a file in a window of a given width and colour scheme, as on a screen or as printed."""
        return self.visit(page.as_uri(), width_px=width_px, scheme=scheme, medium=medium)

    def visit(self, address: str, *, width_px: int, scheme: str = "light", medium: str = "screen") -> Self:
        """Open an address as `show` opens a file."""
        size = {"width": width_px, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", **size)
        # Without motion a click does not have to wait until the page has scrolled.
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self._command("Emulation.setEmulatedMedia", features=features, media=medium)
        self._post("url", {"url": address})
        return self

    def run(self, script: str) -> Any:
        """Run JavaScript as the body of a function in the page, and return what it returns."""
        return self._post("execute/sync", {"script": script, "args": []})

    def evaluate(self, source: str) -> Any:
        """Run source as the browser's own tools do, also where the page's policy forbids scripts.

        If the result is a promise, its value is returned.
        """
        answer = self._command("Runtime.evaluate", expression=source, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, in WebDriver's code, in the element that has the focus."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self._post("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def hover(self, x_px: float, y_px: float) -> None:
        """Move the pointer to a place of the window."""
        self._pointer([self._move(x_px, y_px)])

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the left button at one place of the window, and release it at another."""
        middle = ((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2)
        down, up = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        self._pointer([self._move(*begin), down, self._move(*middle), self._move(*end), up])

    def _move(self, x_px: float, y_px: float) -> dict[str, Any]:
        return {"type": "pointerMove", "duration": 20, "x": round(x_px), "y": round(y_px)}

    def _pointer(self, actions: list[dict[str, Any]]) -> None:
        self._post("actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})

    @contextmanager
    def blocking(self, pattern: str) -> Iterator[None]:
        """Let requests for matching addresses fail during the `with` block; `*` stands for any text."""
        self._command("Network.enable")
        self._command("Network.setBlockedURLs", urls=[pattern])
        try:
            yield
        finally:
            self._command("Network.setBlockedURLs", urls=[])

    def save_downloads(self, folder: Path) -> None:
        """Make the browser save files that links download in a folder."""
        self._command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def click(self, selector: str) -> None:
        """Click the first element that a CSS selector finds, as a person would."""
        element = self._post("element", {"using": "css selector", "value": selector})
        self._post(f"element/{next(iter(element.values()))}/click", {})

    def saved(self, path: Path) -> str:
        """Wait until a downloaded file exists, and return its text; raises TimeoutError after 3 min."""
        deadline = time.monotonic() + TIMEOUT_S
        while not path.is_file():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} was not saved within {TIMEOUT_S} s")
            time.sleep(POLL_S)
        return path.read_text(encoding="utf-8")

    def console(self) -> list[str]:
        """Return the messages that the browser console has written since the last call."""
        return [entry["message"] for entry in self._post("se/log", {"type": "browser"})]

    def has_dialog(self) -> bool:
        """Tell whether the page shows an alert."""
        return self._http.get(f"{self._url}/alert/text", timeout=TIMEOUT_S).ok


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """Run a browser with a new profile, and give its window; skip the test if no browser is installed."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no headless browser: install chromium and chromium-driver")
    options = {"binary": program, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
    wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    command = [driver, "--port=0"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        requests.Session() as http,
    ):
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "started successfully on port" in line)
            url = f"http://127.0.0.1:{line.split()[-1].rstrip('.')}/session"
            body = {"capabilities": {"alwaysMatch": wanted}}
            answer = http.post(url, json=body, timeout=TIMEOUT_S)
            answer.raise_for_status()
            session = f"{url}/{answer.json()['value']['sessionId']}"
            yield Tab(session, http)
            http.delete(session, timeout=TIMEOUT_S)
        finally:
            process.terminate()
