// Draws the blocks, handles the buttons, and asks the server of a live page for new versions.

const DRAW = { plot: drawPlot, bars: drawBars, map: drawMap, picture: drawPicture };

function draw(figure) {
  const data = report.blocks[figure.dataset.block];
  DRAW[data.kind](figure, data);
}

function drawAll(kinds) {
  for (const figure of document.querySelectorAll("[data-block]")) {
    if (kinds.includes(report.blocks[figure.dataset.block].kind)) draw(figure);
  }
  showChips();
}

const EMPTY_IMAGE = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E";

// Films are decoded when they are near the window.
const nearby = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) loadPicture(target);
}, { rootMargin: "400px" });

function drawPicture(figure, data) {
  const image = html("img", { alt: data.title, "data-picture": figure.dataset.block, src: EMPTY_IMAGE, ...data.size });
  figure.querySelector(".drawing").replaceChildren(image);
  nearby.observe(image);
}

function loadPicture(image) {
  nearby.unobserve(image);
  image.src = report.blocks[image.dataset.picture].source;
}

function showChips() {
  for (const button of document.querySelectorAll(".chip")) {
    button.setAttribute("aria-pressed", String(!state.hidden.has(button.dataset.variant)));
  }
}

// A click hides or shows a variant everywhere; a double click shows it alone, or all again.
document.addEventListener("click", (event) => {
  const button = event.target.closest(".chip");
  if (button) toggle(button);
  const heading = event.target.closest("thead button");
  if (heading) sortBy(heading.closest("th"));
});

document.addEventListener("dblclick", (event) => {
  const button = event.target.closest(".chip");
  if (!button) return;
  const { hidden } = state, name = button.dataset.variant;
  const names = siblingsOf(button);
  const alone = names.every((each) => each === name || hidden.has(each));
  for (const each of names) if (alone || each === name) hidden.delete(each); else hidden.add(each);
  redraw(button);
});

function siblingsOf(button) {
  return [...button.parentElement.querySelectorAll(".chip")].map((each) => each.dataset.variant);
}

function toggle(button) {
  const name = button.dataset.variant;
  if (!state.hidden.delete(name)) state.hidden.add(name);
  redraw(button);
}

// Redrawing replaces the legend of a plot: the pressed button gets the focus again.
function redraw(button) {
  const figure = button.closest("[data-block]");
  drawAll(["plot", "bars"]);
  if (figure) [...figure.querySelectorAll(".chip")].find((each) => each.dataset.variant === button.dataset.variant)?.focus();
}

function sortBy(heading, direction) {
  const table = heading.closest("table"), column = heading.cellIndex;
  direction ??= heading.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
  const sign = direction === "ascending" ? 1 : -1;
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => {
    if (value(a) === "" || value(b) === "") return (value(a) === "") - (value(b) === "");
    if (heading.classList.contains("number")) return sign * (Number(value(a)) - Number(value(b)));
    return sign * value(a).localeCompare(value(b));
  };
  for (const each of heading.parentElement.cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", direction);
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
  state.sorted.set(table.closest("figure").id, [column, direction]);
}

function restoreSorting() {
  for (const [name, [column, direction]] of state.sorted) {
    const heading = document.getElementById(name)?.querySelector("thead tr").cells[column];
    if (heading) sortBy(heading, direction);
  }
}

// Returns the stored theme; null if there is none or the browser denies storage.
function storedTheme() {
  try {
    return localStorage.getItem("byol-explore-theme");
  } catch {
    return null;
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("byol-explore-theme", theme);
  } catch {
    // storage is denied: the theme lasts as long as the page
  }
}

document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  setTheme((["light", "dark"].includes(dark) ? dark : system) === "dark" ? "light" : "dark");
});

// Marks the visible section in the table of contents.
const visibleSections = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    const link = document.querySelector(`.contents a[href="#${CSS.escape(target.id)}"]`);
    link?.classList.toggle("here", isIntersecting);
  }
}, { rootMargin: "-20% 0px -70% 0px" });

function watchSections() {
  visibleSections.disconnect();
  for (const section of document.querySelectorAll("main section")) visibleSections.observe(section);
}

// Fetches the new page and replaces the content; unchanged films keep playing.
async function update() {
  const fetched = new DOMParser().parseFromString(await (await fetch(location.pathname)).text(), "text/html");
  const before = report, scroll = window.scrollY;
  report = JSON.parse(fetched.getElementById("data").textContent);
  document.documentElement.dataset.version = fetched.documentElement.dataset.version;
  document.title = fetched.title;
  document.querySelector("h1").textContent = fetched.querySelector("h1").textContent;
  for (const id of ["legend", "contents"]) document.getElementById(id).replaceChildren(...fetched.getElementById(id).children);
  for (const fresh of fetched.querySelectorAll("[data-block]")) {
    const name = fresh.dataset.block, old = document.getElementById(fresh.id);
    const same = JSON.stringify(before.blocks[name]) === JSON.stringify(report.blocks[name]);
    if (same && report.blocks[name].kind === "picture" && old) fresh.replaceWith(old);
  }
  document.getElementById("content").replaceChildren(...fetched.getElementById("content").children);
  restoreSorting();
  drawAll(["plot", "bars", "map"]);
  for (const figure of document.querySelectorAll("[data-block]")) {
    if (report.blocks[figure.dataset.block].kind === "picture" && !figure.querySelector("img")) draw(figure);
  }
  watchSections();
  tooltip.hide();
  window.scrollTo({ top: scroll, behavior: "instant" });
}

async function pollVersion() {
  const status = document.getElementById("live");
  try {
    const latest = await (await fetch("version", { cache: "no-store" })).json();
    if (latest.version !== document.documentElement.dataset.version) await update();
    status.textContent = latest.note || `live, as of ${latest.time}`;
  } catch {
    status.textContent = "the server has stopped";
  }
  setTimeout(pollVersion, 1000);
}

if (storedTheme()) document.documentElement.dataset.theme = storedTheme();
drawAll(["plot", "bars", "map", "picture"]);
watchSections();
new ResizeObserver(() => {
  const { clientWidth } = document.getElementById("content");
  if (clientWidth !== drawAll.width) drawAll(["plot", "bars"]);
  drawAll.width = clientWidth;
}).observe(document.getElementById("content"));
window.addEventListener("beforeprint", () => document.querySelectorAll("img[data-picture]").forEach(loadPicture));
window.addEventListener("scroll", () => tooltip.hide(), { passive: true });
if (document.documentElement.dataset.version) pollVersion();
