"use strict";
// What the reader has chosen: the theme, which variants are hidden, which slice of time is shown. It outlives updates.

const state = { hidden: new Set(), slices: new Map(), sorted: new Map() };
let report = JSON.parse(document.getElementById("data").textContent);

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, children = []) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function html(name, attributes = {}, children = []) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// A number for people: three or four digits, thousands apart.
function shown(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return short(value);
  if (Number.isInteger(value) || size >= 1000) return tidy(value.toLocaleString("en", { maximumFractionDigits: 0 }));
  if (size >= 0.001) return tidy(String(Number(value.toPrecision(4))));
  return value === 0 ? "0" : tidy(value.toExponential(2));
}

// The same with few letters, for axes: 250k, 4M, 1.5B.
function short(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return tidy(String(Number((value / unit).toPrecision(4)))) + letter;
  }
  if (size !== 0 && size < 0.001) return tidy(value.toExponential(0));
  return tidy(String(Number(value.toPrecision(4))));
}

// The marks of an axis, all with the same number of decimals.
function axisLabels(marks) {
  if (marks.some((mark) => Math.abs(mark) >= 1000 || (mark !== 0 && Math.abs(mark) < 0.001))) return marks.map(short);
  const decimals = highest(marks.map((mark) => (String(mark).split(".")[1] || "").length));
  return marks.map((mark) => tidy(mark.toFixed(decimals)));
}

function lowest(values) {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}

function highest(values) {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}

function tidy(text) {
  return text.replace("-", "−");
}

function strokeOf(curve) {
  return curve.stroke || report.variants[curve.variant] || { light: "#777", dark: "#aaa", dashes: [] };
}

function colour(stroke) {
  return `--c:light-dark(${stroke.light},${stroke.dark})`;
}

function swatch(stroke) {
  const line = svg("line", { x1: 1, x2: 17, y1: 4, y2: 4, "stroke-dasharray": stroke.dashes.join(" ") || "none" });
  return svg("svg", { class: "swatch", viewBox: "0 0 18 8", "aria-hidden": "true", style: colour(stroke) }, [line]);
}

function chip(name, stroke) {
  const button = html("button", { type: "button", class: "chip", "data-variant": name });
  button.append(swatch(stroke), name);
  return button;
}

// The tooltip: a heading and rows of [stroke, name, value, range].
const tooltip = {
  node: document.getElementById("tooltip"),
  show(x, y, title, rows) {
    const lines = rows.map(([stroke, name, value, range]) => {
      const figures = html("span", {}, [value]);
      if (range) figures.append(html("span", { class: "range" }, [` ${range}`]));
      return html("div", {}, [stroke ? swatch(stroke) : "", html("span", {}, [name]), figures]);
    });
    this.node.replaceChildren(html("b", {}, [title]), ...lines);
    this.node.hidden = false;
    const box = this.node.getBoundingClientRect();
    const right = x + 16 + box.width < window.innerWidth;
    this.node.style.left = `${Math.max(8, right ? x + 16 : x - 16 - box.width)}px`;
    this.node.style.top = `${Math.max(8, Math.min(y - 10, window.innerHeight - box.height - 8))}px`;
  },
  hide() {
    this.node.hidden = true;
  },
};

// Marks of an axis at round numbers, about `count` of them.
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  const marks = []; // counted from the first: numbers that are too large for it do not change by adding one
  for (let i = 0; i <= Math.min(last - first, 50); i++) marks.push(Number(((first + i) * step).toPrecision(12)));
  return marks;
}

// The same for a logarithmic axis: powers of ten, and numbers between them where there are few.
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const powers = Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
  const sets = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]];
  const marks = sets.map((set) => powers.flatMap((power) => set.map((factor) => Number((factor * power).toPrecision(2)))));
  const fitting = marks.map((each) => each.filter((mark) => mark >= low * 0.999 && mark <= high * 1.001));
  return fitting.find((each) => each.length >= 3) || fitting[fitting.length - 1];
}
