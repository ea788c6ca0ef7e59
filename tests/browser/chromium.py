"""Real Chromium, as a person would use it: pages, keys, clicks; and what its console said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

DESKTOP, PHONE = (1360, 900), (390, 844)
_PATIENCE = 90.0
_DELAY = """
const [words, wait, fails] = arguments;
if (!window.delays) {
  const ask = window.fetch.bind(window);
  window.nLate = window.nDelayed = 0;
  window.fetch = async (address, options) => {
    const asked = `${address} ${options?.body ?? ""}`;
    const delay = window.delays.find(({ words }) => asked.includes(words));
    if (!delay) return ask(address, options);
    window.nDelayed += 1;
    const answer = delay.fails ? null : await ask(address, { ...options, signal: undefined });
    await new Promise((done) => setTimeout(done, delay.wait));
    window.nLate += 1;
    if (delay.fails) throw new TypeError("Failed to fetch");
    return answer;
  };
  window.delays = [];
}
window.delays.push({ words, wait, fails });
"""


def find_programs() -> tuple[str, str] | None:
    """Chromium and its driver; None where one is missing."""
    browser, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    return None if browser is None or driver is None else (browser, driver)


class Page:
    """The explorer in a tab."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver, self.url = driver, url.rstrip("/")

    def open(self, hash_: str = "") -> None:
        """A new load, whatever was there before."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/{hash_}")

    def size(self, width: int, height: int, scale: float = 1.0) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, theme: str) -> None:
        """light or dark, as the system would say."""
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def wait(self, what: Callable[[], Any]) -> Any:
        """Until it is something true, which is returned."""
        waiting = WebDriverWait(self.driver, _PATIENCE, 0.05, [StaleElementReferenceException])
        return waiting.until(lambda _: what())

    def one(self, css: str, text: str = "") -> WebElement:
        """The first that is shown, once it is; with this text in it."""

        def shown() -> WebElement | None:
            return next((found for found in self.all(css) if found.is_displayed() and text in found.text), None)

        found = self.wait(shown)
        assert isinstance(found, WebElement)
        return found

    def gone(self, css: str) -> None:
        self.wait(lambda: not any(found.is_displayed() for found in self.all(css)))

    def settled(self) -> None:
        """Nothing is being asked for or drawn any more."""
        self.gone("[aria-busy=true], .loading")
        self.wait(lambda: self.run("return document.fonts.status") == "loaded")

    def field(self, label: str) -> WebElement:
        """By the label that a screen reader would read."""
        script = """
        const wanted = arguments[0];
        for (const label of document.querySelectorAll("label"))
          if (label.textContent.trim().startsWith(wanted)) return document.getElementById(label.htmlFor) ?? label.control;
        return null;"""
        found = self.wait(lambda: self.run(script, label))
        assert isinstance(found, WebElement)
        return found

    def search(self, label: str, words: str) -> None:
        """Types, waits for what is found, and takes the first by keys alone."""
        field = self.field(label)
        field.click()
        field.clear()
        field.send_keys(words)
        self.one(".found:not([hidden]) [role=option]", words)
        field.send_keys(Keys.ARROW_DOWN, Keys.ENTER)

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def script(self, script: str, *given: Any) -> Any:
        """As a module of the page would see it: `await` and `import("/static/...")` work."""
        wrapped = f"const done = arguments[arguments.length - 1]; (async (...given) => {{ {script} }})(...arguments).then(done, (error) => done(String(error)))"
        return self.run_async(wrapped, *given)

    def delay(self, words: str, seconds: float, fails: bool = False) -> None:
        """From now on answers to addresses or bodies that hold these words come so much later, or not at all."""
        self.run(_DELAY, words, seconds * 1000, fails)

    def undelay(self) -> None:
        self.run("window.delays = []")

    def late(self, n: int = 1) -> None:
        """So many of them have come by now, and the page has had the time to take them up."""
        self.wait(lambda: self.run("return window.nLate") >= n)
        self.script("for (let turn = 0; turn < 5; turn += 1) await new Promise((done) => setTimeout(done, 20))")
        self.settled()

    def announced(self) -> str:
        return str(self.run("return document.getElementById('announce').textContent"))

    def focused(self, property_: str = "className") -> str:
        return str(self.run("return document.activeElement[arguments[0]]", property_))

    def press(self, *keys: str) -> None:
        """Where the focus is."""
        self.run("return document.activeElement").send_keys(*keys)

    def run_async(self, script: str, *given: Any) -> Any:
        return self.driver.execute_async_script(script, *given)

    def text(self, css: str) -> str:
        return str(self.one(css).text)

    def texts(self, css: str) -> list[str]:
        return [found.text for found in self.all(css)]

    def console(self) -> list[str]:
        """What was written there as a warning or an error since the last look."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]


@contextmanager
def chromium(url: str, arguments: Sequence[str] = ()) -> Iterator[Page]:
    programs = find_programs()
    assert programs is not None, "Chromium and chromedriver are needed: apt-get install chromium chromium-driver."
    options = ChromeOptions()
    options.binary_location = programs[0]
    wanted = ["--headless=new", "--window-size=1360,900", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en-US"]
    wanted += ["--no-sandbox"] if os.geteuid() == 0 else []
    for argument in (*wanted, *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING"})
    driver = Chrome(options, Service(programs[1]))
    try:
        driver.set_script_timeout(_PATIENCE)
        yield Page(driver, url)
    finally:
        driver.quit()
