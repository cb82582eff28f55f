// Numbers over a floor plan, one slice of training at a time. All slices of a map share one scale.

function drawMap(figure, data) {
  const drawing = figure.querySelector(".drawing");
  const scale = mapScale(data);
  if (!scale) {
    drawing.replaceChildren(html("p", { class: "empty" }, ["nothing visited yet"]));
    return;
  }
  const [rows, columns] = [data.floor.length, highest(data.floor.map((line) => line.length))];
  const root = svg("svg", { viewBox: `0 0 ${columns} ${rows}`, role: "img", style: `max-height:26rem` });
  const cells = floorCells(root, data);
  const output = html("output");
  const show = (index) => {
    const [label, values] = data.slices[index];
    for (const { node, row, column } of cells) {
      const value = values[row]?.[column] ?? null;
      node.style.fill = value === null ? "" : rampColour(scale.share(value));
    }
    output.textContent = label;
    root.setAttribute("aria-label", `${data.title}, ${label}: ${data.unit} from ${format(scale.low)} to ${format(scale.high)}`);
  };
  const key = data.slices.map(([label]) => label).join("|");
  const last = data.slices.length - 1;
  const index = () => Math.min(state.slices.get(key) ?? last, last);
  root.addEventListener("pointermove", (event) => {
    const cell = cells.find(({ node }) => node === event.target);
    if (!cell) return tooltip.hide();
    const value = data.slices[index()][1][cell.row]?.[cell.column] ?? null;
    tooltip.show(event.clientX, event.clientY, value === null ? "never visited" : `${format(value)} ${data.unit}`, []);
  });
  root.addEventListener("pointerleave", () => tooltip.hide());
  const nodes = [root, scaleBar(scale, data)];
  if (last > 0) nodes.push(sliceSlider(figure, key, last, index(), output));
  else nodes.push(html("div", { class: "slices" }, [output]));
  drawing.replaceChildren(...nodes);
  figure.showSlice = (of) => of === key && show(index());
  show(index());
}

// Maps with the same slices change together.
function sliceSlider(figure, key, last, index, output) {
  const slider = html("input", { type: "range", min: 0, max: last, step: 1, "aria-label": "time of training", "data-slices": key });
  slider.value = index;
  slider.addEventListener("input", () => {
    state.slices.set(key, Number(slider.value));
    for (const other of document.querySelectorAll("[data-block]")) other.showSlice?.(key);
    for (const other of document.querySelectorAll("input[data-slices]")) {
      if (other.dataset.slices === key) other.value = slider.value;
    }
  });
  return html("div", { class: "slices" }, [slider, output]);
}

function mapScale(data) {
  let values = data.slices.flatMap(([, values]) => values.flat()).filter((value) => value !== null);
  if (data.logarithmic) values = values.filter((value) => value > 0);
  if (!values.length) return null;
  const [low, high] = [data.logarithmic ? lowest(values) : Math.min(0, lowest(values)), highest(values)];
  const place = data.logarithmic ? Math.log : (value) => value;
  const back = data.logarithmic ? Math.exp : (value) => value;
  const span = place(high) - place(low) || 1;
  const share = (value) => Math.min(Math.max((place(Math.max(value, low)) - place(low)) / span, 0), 1);
  return { low, high, middle: back((place(low) + place(high)) / 2), share };
}

function rampColour(share) {
  const stops = report.ramp, at = share * (stops.length - 1);
  const index = Math.min(Math.floor(at), stops.length - 2);
  return `color-mix(in srgb, ${stops[index + 1]} ${((at - index) * 100).toFixed(0)}%, ${stops[index]})`;
}

function scaleBar(scale, data) {
  const unit = html("p", {}, [data.logarithmic ? `${data.unit}, logarithmic` : data.unit]);
  const ramp = html("div", { class: "ramp", style: `background:linear-gradient(90deg, ${report.ramp.join(",")})` });
  const numbers = [scale.low, scale.middle, scale.high].map((value) => html("span", {}, [format(Number(value.toPrecision(3)))]));
  return html("div", { class: "scale", "aria-hidden": "true" }, [unit, ramp, ...numbers]);
}

// Draws walls and objects; returns the cells to colour by their numbers.
function floorCells(root, data) {
  const cells = [], marks = [];
  data.floor.forEach((line, row) => [...line].forEach((symbol, column) => {
    const node = svg("rect", { x: column, y: row, width: 1.01, height: 1.01, class: symbol === "#" ? "wall" : "open" });
    root.append(node);
    if (symbol !== "#") cells.push({ node, row, column });
    const path = { D: doorPath, G: goalPath, o: objectPath }[symbol]?.(column, row);
    if (path) marks.push(svg("path", { class: "mark-under", d: path }), svg("path", { class: "mark", d: path }));
  }));
  for (const mark of marks) mark.style.pointerEvents = "none";
  root.append(...marks);
  return cells;
}

function doorPath(x, y) {
  return `M${x + 0.25} ${y + 0.9}V${y + 0.12}H${x + 0.75}V${y + 0.9}M${x + 0.6} ${y + 0.55}v.02`;
}

function goalPath(x, y) {
  return `M${x + 0.3} ${y + 0.88}V${y + 0.14}L${x + 0.78} ${y + 0.34}L${x + 0.3} ${y + 0.54}`;
}

function objectPath(x, y) {
  return `M${x + 0.3} ${y + 0.5}a.2 .2 0 1 0 .4 0a.2 .2 0 1 0 -.4 0`;
}
