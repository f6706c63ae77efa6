"""Debian's headless Chromium, and what a person does with it; a machine without it leaves such tests out."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

DRIVER, PROGRAM = Path("/usr/bin/chromedriver"), Path("/usr/bin/chromium")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900", "--lang=en")
PATIENCE = 15.0
"""Seconds for what a page shows sooner or later."""


class Browser:
    """One window. ``with`` ends it."""

    def __init__(self, folder: Path) -> None:
        if not (DRIVER.exists() and PROGRAM.exists()):
            pytest.skip("no chromium and chromium-driver here (Debian's packages)")
        options = ChromeOptions()
        options.binary_location = str(PROGRAM)
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        environment = {**os.environ, "SE_OFFLINE": "true", "TZ": "UTC", "LANG": "C.UTF-8"}
        self.window = Chrome(service=Service(str(DRIVER), env=environment), options=options)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.window.quit()

    def open(self, address: str) -> None:
        """Go to a page."""
        self.window.get(address)

    def text(self, selector: str = "body") -> str:
        """What a person reads there, without the breaks of lines."""
        return " ".join(self.one(selector).text.split())

    def one(self, selector: str) -> WebElement:
        """The element of a CSS selector."""
        return self.window.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """The elements of a CSS selector."""
        return self.window.find_elements(By.CSS_SELECTOR, selector)

    def rows(self, selector: str) -> list[list[str]]:
        """The cells of a table's rows, all read at one moment: a live part of a page is renewed under way."""
        script = """return [...document.querySelectorAll(arguments[0] + " tbody tr")].filter((row) => !row.hidden)
            .map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"""
        found: list[list[str]] = self.window.execute_script(script, selector)
        return found

    def narrow(self, width: int) -> None:
        """Show pages as a telephone of this width does; 0: as the window is."""
        if not width:
            self.window.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            return
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        self.window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def keep_picture(self, name: str) -> None:
        """Keep a picture of the whole page in the folder of the variable ERUCA_PICTURES, if there is one."""
        if folder := os.environ.get("ERUCA_PICTURES"):
            taken = self.window.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))

    def fill(self, name: str, text: str) -> None:
        """Type into a field."""
        field = self.one(f"[name={name}]:not([type=hidden])")
        field.clear()
        field.send_keys(text)

    def press(self, words: str) -> None:
        """Press the button or the link with these words, as soon as the page has it."""
        path = f"//main//*[(self::button or self::a) and normalize-space()='{words}']"

        def pressed() -> bool:
            self.window.find_element(By.XPATH, path).click()
            return True

        self.until(pressed, f"'{words}' can be pressed")

    def shows(self, words: str, selector: str = "body") -> None:
        """Wait until a person reads these words there."""
        self.until(lambda: words in self.text(selector), f"'{words}'")

    def until(self, condition: Callable[[], bool], what: str, within: float = PATIENCE) -> float:
        """Wait for a condition; the seconds that it took."""
        began = time.monotonic()
        while True:
            try:
                if condition():
                    return time.monotonic() - began
            except (NoSuchElementException, StaleElementReferenceException):
                pass  # the page is under way, or a part of it has just been fetched again
            if time.monotonic() - began > within:
                pytest.fail(f"not within {within:.0f} s: {what}; the page: {self.text()[:2000]}")
            time.sleep(0.05)

    def complaints(self) -> list[str]:
        """What the browser's log has of errors since the last look."""
        log = self.window.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in log if entry["level"] == "SEVERE"]
