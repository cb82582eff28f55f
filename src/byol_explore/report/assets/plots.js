// Curves over training with their bands. The cursor shows the values of all visible curves.

function drawPlot(figure, data) {
  const drawing = figure.querySelector(".drawing");
  const curves = data.curves.filter((curve) => !state.hidden.has(curve.variant));
  const width = Math.max(drawing.clientWidth, 240);
  const height = Math.round(Math.min(Math.max(width * 0.58, 210), 360));
  const extent = plotExtent(data, curves);
  const reason = data.curves.length ? "all hidden" : "nothing logged yet";
  const empty = () => html("p", { class: "empty", style: `height:${height - 64}px` }, [reason]);
  drawing.replaceChildren(extent ? plotSvg(data, curves, extent, width, height) : empty(), ownLegend(data));
}

function ownLegend(data) {
  const names = data.curves.map((curve) => chip(curve.variant, strokeOf(curve)));
  const known = data.curves.every((curve) => curve.variant in report.variants);
  return html("div", { class: known ? "own-legend known" : "own-legend" }, names);
}

// Returns the ranges of both axes; null if there is nothing to draw.
function plotExtent(data, curves) {
  const xs = [], ys = [];
  for (const curve of curves) {
    const grid = data.grids[curve.grid];
    curve.mean.forEach((mean, i) => {
      if (mean === null || (data.logarithmic && mean <= 0)) return;
      xs.push(grid[i]);
      ys.push(mean);
      if (curve.low && curve.low[i] !== null && !(data.logarithmic && curve.low[i] <= 0)) ys.push(curve.low[i]);
      if (curve.high && curve.high[i] !== null) ys.push(curve.high[i]);
    });
  }
  if (!xs.length) return null;
  let [left, right] = [lowest(xs), highest(xs)];
  let [bottom, top] = data.y_range || (data.logarithmic ? [lowest(ys) * 0.9, highest(ys) * 1.1] : padded(lowest(ys), highest(ys)));
  if (left === right) [left, right] = [left - stepMargin(left), right + stepMargin(left)];
  return { left, right, bottom, top };
}

// Returns the margin on both sides of a single step.
function stepMargin(step) {
  return Math.max(1, Math.abs(step) * 1e-3);
}

function padded(low, high) {
  if (low === high) return [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
  const margin = (high - low) * 0.06;
  return [low >= 0 && low < high * 0.3 ? 0 : low - margin, high + margin];
}

function plotSvg(data, curves, extent, width, height) {
  const marks = data.logarithmic ? logTicks(extent.bottom, extent.top) : ticks(extent.bottom, extent.top, height / 55);
  const labels = axisLabels(marks);
  const box = { left: 14 + 7 * highest(labels.map((label) => label.length)), right: width - 12, top: 27, bottom: height - 42 };
  const x = (value) => box.left + ((value - extent.left) / (extent.right - extent.left)) * (box.right - box.left);
  const level = data.logarithmic ? (value) => Math.log(Math.max(value, extent.bottom / 2)) : (value) => value;
  const [floor, span] = [level(extent.bottom), level(extent.top) - level(extent.bottom)];
  const y = (value) => box.bottom - ((level(value) - floor) / span) * (box.bottom - box.top);
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, class: "plotted", "aria-label": describeCurves(data, curves),
  });
  marks.forEach((mark, i) => {
    root.append(svg("line", { class: "rule", x1: box.left, x2: box.right, y1: y(mark), y2: y(mark) }));
    root.append(svg("text", { x: box.left - 8, y: y(mark) + 4, "text-anchor": "end" }, [labels[i]]));
  });
  const steps = ticks(extent.left, extent.right, width / 80);
  axisLabels(steps).forEach((label, i) => {
    root.append(svg("text", { x: x(steps[i]), y: box.bottom + 18, "text-anchor": "middle" }, [label]));
  });
  root.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, [data.x_label]));
  root.append(svg("text", { x: 0, y: 11 }, [data.y_label]));
  const name = `clip-${Math.random().toString(36).slice(2)}`;
  const inside = { x: box.left, y: box.top - 3, width: box.right - box.left, height: box.bottom - box.top + 6 };
  root.append(svg("clipPath", { id: name }, [svg("rect", inside)]));
  const lines = svg("g", { "clip-path": `url(#${name})` });
  for (const curve of curves) lines.append(bandOf(curve, data.grids[curve.grid], x, y));
  for (const curve of [...curves].reverse()) lines.append(lineOf(curve, data.grids[curve.grid], x, y));
  root.append(lines);
  followCursor(root, data, curves, { x, y, box, extent, width });
  return root;
}

// Returns runs of consecutive indices at which all series are known.
function knownRuns(...series) {
  const found = [];
  let open = null;
  series[0].forEach((_, i) => {
    if (series.every((values) => values[i] !== null)) {
      if (!open) found.push((open = []));
      open.push(i);
    } else open = null;
  });
  return found;
}

function bandOf(curve, grid, x, y) {
  const group = svg("g", { style: colour(strokeOf(curve)) });
  if (!curve.low) return group;
  for (const part of knownRuns(curve.low, curve.high)) {
    const there = part.map((i) => `${x(grid[i]).toFixed(1)},${y(curve.high[i]).toFixed(1)}`);
    const back = part.map((i) => `${x(grid[i]).toFixed(1)},${y(curve.low[i]).toFixed(1)}`).reverse();
    group.append(svg("path", { class: "band", d: `M${there.join("L")}L${back.join("L")}Z` }));
  }
  return group;
}

function lineOf(curve, grid, x, y) {
  const stroke = strokeOf(curve);
  const group = svg("g", { style: colour(stroke), "data-curve": curve.variant });
  for (const part of knownRuns(curve.mean)) {
    if (part.length === 1) group.append(svg("circle", { class: "dot", cx: x(grid[part[0]]), cy: y(curve.mean[part[0]]), r: 3.5 }));
    const points = part.map((i) => `${x(grid[i]).toFixed(1)},${y(curve.mean[i]).toFixed(1)}`);
    group.append(svg("path", { class: "curve", d: `M${points.join("L")}`, "stroke-dasharray": stroke.dashes.join(" ") || "none" }));
  }
  return group;
}

// Describes where each curve ends, for screen readers.
function describeCurves(data, curves) {
  const ends = curves.map((curve) => {
    const known = curve.mean.filter((value) => value !== null);
    return `${curve.variant} ends at ${known.length ? format(known[known.length - 1]) : "nothing"}`;
  });
  return `${data.title}: ${data.y_label} over ${data.x_label}. ${ends.join(", ")}.`;
}

// Returns the index of the known point nearest to x; null outside of the curve.
function nearest(curve, grid, value) {
  let best = null;
  curve.mean.forEach((mean, i) => {
    if (mean !== null && (best === null || Math.abs(grid[i] - value) < Math.abs(grid[best] - value))) best = i;
  });
  if (best === null) return null;
  const step = Math.abs((grid[best + 1] ?? grid[best]) - (grid[best - 1] ?? grid[best])) || 1;
  return Math.abs(grid[best] - value) <= step ? best : null;
}

function followCursor(root, data, curves, { x, y, box, extent, width }) {
  const overlay = svg("g");
  root.append(overlay, svg("rect", {
    x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, fill: "transparent", class: "sensor",
  }));
  const grids = [...new Set(curves.map((curve) => curve.grid))].flatMap((index) => data.grids[index]);
  const stops = [...new Set(grids)].filter((value) => value >= extent.left && value <= extent.right).sort((a, b) => a - b);
  let at = stops.length - 1;
  const show = (clientY) => {
    const stop = stops[at];
    const found = curves.map((curve) => ({ curve, i: nearest(curve, data.grids[curve.grid], stop) })).filter(({ i }) => i !== null);
    found.sort((a, b) => b.curve.mean[b.i] - a.curve.mean[a.i]);
    overlay.replaceChildren(svg("line", { class: "cursor", x1: x(stop), x2: x(stop), y1: box.top, y2: box.bottom }));
    for (const { curve, i } of found) {
      const place = { cx: x(data.grids[curve.grid][i]), cy: y(curve.mean[i]), r: 4 };
      overlay.append(svg("circle", { class: "dot", style: colour(strokeOf(curve)), ...place }));
    }
    const rows = found.map(({ curve, i }) => [strokeOf(curve), curve.variant, format(curve.mean[i]), rangeAt(curve, i)]);
    const frame = root.getBoundingClientRect();
    tooltip.show(frame.left + (x(stop) / width) * frame.width, clientY ?? frame.top + 40, `${format(stop)} ${data.x_label}`, rows);
  };
  const point = (event) => {
    const frame = root.getBoundingClientRect();
    const share = (((event.clientX - frame.left) / frame.width) * width - box.left) / (box.right - box.left);
    const value = extent.left + share * (extent.right - extent.left);
    at = stops.reduce((best, stop, i) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? i : best), 0);
    show(event.clientY);
  };
  const leave = () => {
    overlay.replaceChildren();
    tooltip.hide();
  };
  root.addEventListener("pointermove", point);
  root.addEventListener("pointerdown", point);
  root.addEventListener("pointerleave", leave);
  root.addEventListener("blur", leave);
  root.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") leave();
    if (!move) return;
    event.preventDefault();
    at = Math.min(Math.max(at + move, 0), stops.length - 1);
    show();
  });
}

function rangeAt(curve, i) {
  if (!curve.low || curve.low[i] === null || curve.high[i] === null) return "";
  return `[${format(curve.low[i])}, ${format(curve.high[i])}]`;
}
