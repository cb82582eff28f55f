"use strict";
// The reader's choices, which outlive updates, and helpers that all scripts use.

const state = { hidden: new Set(), slices: new Map(), sorted: new Map() }; // variants, slice by map, column by table
let report = JSON.parse(document.getElementById("data").textContent);

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, children = []) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function html(name, attributes = {}, children = []) {
  return fill(document.createElement(name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Formats a number with up to four digits and thousands separators.
function format(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return formatShort(value);
  if (Number.isInteger(value) || size >= 1000) return withMinus(value.toLocaleString("en", { maximumFractionDigits: 0 }));
  if (size >= 0.001) return withMinus(String(Number(value.toPrecision(4))));
  return value === 0 ? "0" : withMinus(value.toExponential(2));
}

// Formats a number for an axis: 250k, 4M, 1.5B.
function formatShort(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return withMinus(String(Number((value / unit).toPrecision(4)))) + letter;
  }
  if (size !== 0 && size < 0.001) return withMinus(value.toExponential(0));
  return withMinus(String(Number(value.toPrecision(4))));
}

// Formats the ticks of an axis with the same number of decimals.
function axisLabels(marks) {
  if (marks.some((mark) => Math.abs(mark) >= 1000 || (mark !== 0 && Math.abs(mark) < 0.001))) return marks.map(formatShort);
  const decimals = highest(marks.map((mark) => (String(mark).split(".")[1] || "").length));
  return marks.map((mark) => withMinus(mark.toFixed(decimals)));
}

function lowest(values) {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}

function highest(values) {
  return values.reduce((a, b) => Math.max(a, b), -Infinity);
}

function withMinus(text) {
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

// The tooltip has a heading and rows of [stroke, name, value, range].
const tooltip = {
  node: document.getElementById("tooltip"),
  show(x, y, title, rows) {
    const lines = rows.map(([stroke, name, value, range]) => {
      const numbers = html("span", {}, [value]);
      if (range) numbers.append(html("span", { class: "range" }, [` ${range}`]));
      return html("div", {}, [stroke ? swatch(stroke) : "", html("span", {}, [name]), numbers]);
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

// Returns about `count` ticks at round numbers.
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  const marks = []; // first + i, not a running sum: adding one does not change the largest numbers
  for (let i = 0; i <= Math.min(last - first, 50); i++) marks.push(Number(((first + i) * step).toPrecision(12)));
  return marks;
}

// Returns ticks of a logarithmic axis: powers of ten, with numbers between them if there are few.
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const powers = Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
  const sets = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]];
  const marks = sets.map((set) => powers.flatMap((power) => set.map((factor) => Number((factor * power).toPrecision(2)))));
  const fitting = marks.map((each) => each.filter((mark) => mark >= low * 0.999 && mark <= high * 1.001));
  return fitting.find((each) => each.length >= 3) || fitting[fitting.length - 1];
}
