"""A service at a port of this machine, and visits of its page with a browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1200, "height": 900}
WAIT = 60_000  # milliseconds; a busy machine takes its time
TEXT = "the trawler left the harbour with herring and cod, the net torn by wind, rain and storm under a cloud"


class Served:
    """A service at a port of this machine, in a thread."""

    def __init__(self, plan: Any) -> None:
        import uvicorn

        from polytag.server.app import create_app

        self.service = plan.service()
        self.server = uvicorn.Server(uvicorn.Config(create_app(self.service), port=0, log_config=None, access_log=False))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
        self.address = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(30)


class Visit:
    """A page in the browser, with what the browser complained about and every address that it asked for."""

    def __init__(
        self, browser: Any, served: Served, size: dict[str, int] = DESK, colours: str = "light", language: str = "en"
    ) -> None:
        self.context = browser.new_context(viewport=size, color_scheme=colours, locale=language, accept_downloads=True)
        self.page, self.served = self.context.new_page(), served
        self.page.set_default_timeout(WAIT)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "response", lambda answer: self.complaints.extend([f"{answer.status} {answer.url}"] * (answer.status >= 400))
        )
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.go("label")
        self.page.wait_for_selector("textarea")

    def go(self, view: str) -> None:
        self.page.goto(f"{self.served.address}/#/{view}")
        self.page.wait_for_selector(f"main.view-{view}")

    def write(self, text: str = TEXT) -> None:
        self.page.fill("textarea", text)
        self.page.wait_for_function("text => document.querySelectorAll('.rows .row').length > 0", arg=text)
        self.page.wait_for_function("() => !document.querySelector('.columns.waiting')")

    def row(self, label: str) -> Any:
        return self.page.locator(f'.row[data-label="{label}"]')

    def labels(self) -> list[str]:
        """The labels in the set, as the page shows them."""
        rows = "all => all.filter((one) => one.dataset.state !== 'removed').map((one) => one.dataset.label)"
        return list(self.page.locator(".rows:not(.rest) .row").evaluate_all(rows))

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def check(self) -> None:
        """Nothing was refused, nothing went wrong, and nothing was asked of another host."""
        assert self.complaints == []
        assert {url for url in self.requests if not url.startswith((self.served.address, "blob:"))} == set()


def corrections(visit: Visit) -> list[dict[str, Any]]:
    return list(visit.page.request.get(f"{visit.served.address}/v1/corrections").json()["corrections"])


def shown(visit: Visit) -> Iterator[str]:
    """Every state of the page, one after the other."""
    page = visit.page
    yield "empty"
    visit.write()
    yield "labels"
    visit.row("fishing").locator(".name").click()
    page.wait_for_selector(".words .for")
    yield "words"
    page.locator(".ways label").nth(2).click()
    page.wait_for_function("() => document.querySelector('.ways .note').textContent.includes('60')")
    yield "promise"
    visit.row("fishing").locator(".remove").click()
    page.locator(".rest .add").first.click()
    page.locator("[role=combobox]").press_sequentially("o")
    page.wait_for_selector("[role=option]")
    yield "type-ahead"
    page.keyboard.press("Escape")
    page.locator(".adding > button").click()
    page.wait_for_selector("[role=treeitem]")
    page.locator("[role=treeitem][data-label=sport] .toggle").click()
    page.wait_for_selector("[role=treeitem][data-label=football]")
    yield "tree"
    page.keyboard.press("Escape")
    page.locator(".labels > .acts .primary").click()
    page.wait_for_selector(".toast")
    yield "saved"
    page.locator(".settings > button").click()
    yield "settings"
    views = {"next": ".queue", "corrections": ".history", "compare": "table", "errors": "table", "map": "canvas"}
    for view, ready in views.items():
        visit.go(view)
        page.wait_for_selector(ready)
        yield view
    page.locator("[role=combobox]").press_sequentially("sport")
    page.keyboard.press("Enter")
    page.wait_for_selector(".near ol")
    yield "near"
