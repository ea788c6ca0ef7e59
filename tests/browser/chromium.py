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
