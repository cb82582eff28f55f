// One horizontal bar with its interval per variant.

function drawBars(figure, data) {
  const drawing = figure.querySelector(".drawing");
  const bars = data.bars.filter((bar) => !state.hidden.has(bar.variant));
  const known = bars.flatMap((bar) => [bar.value, bar.low, bar.high]).filter((value) => value !== null);
  if (!known.length) {
    drawing.replaceChildren(html("p", { class: "empty" }, [data.bars.length ? "nothing to show" : "nothing measured yet"]));
    return;
  }
  const width = Math.max(drawing.clientWidth, 240), row = 34;
  const height = bars.length * row + 44;
  const longest = highest(bars.map((bar) => bar.variant.length));
  const box = { left: Math.min(14 + 7.2 * longest, width * 0.42), right: width - 62, top: 2, bottom: bars.length * row + 2 };
  const [low, high] = [Math.min(0, lowest(known)), Math.max(highest(known), 0) || 1];
  const x = (value) => box.left + ((value - low) / (high - low)) * (box.right - box.left);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": describeBars(data, bars) });
  const marks = ticks(low, high, (box.right - box.left) / 55);
  axisLabels(marks).forEach((label, i) => {
    root.append(svg("line", { class: "rule", x1: x(marks[i]), x2: x(marks[i]), y1: box.top, y2: box.bottom }));
    root.append(svg("text", { x: x(marks[i]), y: box.bottom + 16, "text-anchor": "middle" }, [label]));
  });
  root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, [data.x_label]));
  bars.forEach((bar, i) => root.append(barOf(bar, box.top + (i + 0.5) * row, x, box, width)));
  drawing.replaceChildren(root);
}

function barOf(bar, middle, x, box, width) {
  const group = svg("g", { style: colour(strokeOf(bar)), "data-bar": bar.variant });
  const name = svg("text", { class: "name", x: box.left - 10, y: middle + 4, "text-anchor": "end" }, [truncate(bar.variant, box.left - 12)]);
  name.append(svg("title", {}, [bar.variant]));
  group.append(name);
  if (bar.value !== null) {
    const [start, end] = [Math.min(x(0), x(bar.value)), Math.max(x(0), x(bar.value))];
    group.append(svg("rect", { class: "bar", x: start, width: Math.max(end - start, 1), y: middle - 9, height: 18, rx: 3 }));
    if (bar.low !== null && bar.high !== null) {
      group.append(svg("line", { class: "whisker", x1: x(bar.low), x2: x(bar.high), y1: middle, y2: middle }));
    }
    group.append(svg("circle", { class: "dot", cx: x(bar.value), cy: middle, r: 5 }));
  }
  group.append(svg("text", { class: "name", x: width - 4, y: middle + 4, "text-anchor": "end" }, [bar.shown]));
  return group;
}

function truncate(text, width) {
  const length = Math.floor(width / 7);
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function describeBars(data, bars) {
  const each = bars.map((bar) => `${bar.variant} ${format(bar.value)}, from ${format(bar.low)} to ${format(bar.high)}`);
  return `${data.title}, ${data.x_label}. ${each.join("; ")}.`;
}
