"""A headless browser for tests of the page."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,900",
)  # fmt: skip


class Browser:
    """Actions on a page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Open a page with empty logs."""
        self.driver.get("about:blank")
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(url)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def scroll_to(self, element: WebElement) -> None:
        """Scroll to an element, and wait until the scroll event has hidden the tooltip."""
        self.driver.execute_async_script(
            "const [element, done] = arguments;"
            "element.scrollIntoView({block: 'center', behavior: 'instant'});"
            "requestAnimationFrame(() => requestAnimationFrame(() => done()));",
            element,
        )

    def hover(self, element: WebElement) -> None:
        self.scroll_to(element)
        ActionChains(self.driver, duration=0).move_to_element_with_offset(element, 1, 1).move_to_element(
            element
        ).perform()

    def double_click(self, element: WebElement) -> None:
        ActionChains(self.driver, duration=0).double_click(element).perform()

    def wait(self, condition: Callable[[], Any], seconds: float = 20) -> None:
        WebDriverWait(self.driver, seconds, poll_frequency=0.1).until(lambda _: condition())

    def resize(self, width: int, height: int = 800) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def set_theme(self, theme: str, media: str = "screen") -> None:
        """Set the preferred colour scheme, and the medium: screen or print."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def console_messages(self) -> list[str]:
        """Return the messages of the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested_urls(self) -> set[str]:
        """Return the URLs requested since the page was opened, without data URLs."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}
        return {url for url in urls if not url.startswith("data:")}


def find_browser() -> tuple[str, str]:
    """Return Chromium and its driver; without them skip the test, or fail in CI."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        reason = "chromium and chromedriver are not installed: `make browser` tries to"
        if os.environ.get("CI") or os.environ.get("BYOL_EXPLORE_CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return chromium, driver


def start_browser(profile: Path) -> Browser:
    """Start Chromium with a new profile."""
    chromium, driver = find_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return Browser(webdriver.Chrome(options, Service(driver)))
