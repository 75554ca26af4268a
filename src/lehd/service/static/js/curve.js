// The cost over time, as a small drawing in SVG.

const [WIDTH, HEIGHT] = [320, 120];

const make = (tag, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

export function drawCurve(svg, history, seconds, reference, brief) {
  svg.replaceChildren();
  for (const old of svg.parentNode.querySelectorAll(".tick")) old.remove();
  if (!history.length) return;
  const costs = history.map((point) => point.cost);
  const last = costs.at(-1);
  const first = costs[0];
  const end = Math.max(seconds, history.at(-1).seconds, 0.1);
  let low = Math.min(last, reference ?? last);
  let high = Math.max(first, reference ?? first);
  const pad = (high - low || Math.abs(high) || 1) * 0.12;
  [low, high] = [low - pad, high + pad];
  const x = (s) => (s / end) * WIDTH;
  const y = (cost) => HEIGHT - ((cost - low) / (high - low)) * (HEIGHT - 18); // the labels stand above
  let path = `M${x(history[0].seconds).toFixed(1)} ${y(first).toFixed(1)}`;
  for (const point of history.slice(1)) path += `H${x(point.seconds).toFixed(1)}V${y(point.cost).toFixed(1)}`;
  path += `H${WIDTH}`;
  svg.append(make("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }));
  svg.append(make("path", { class: "area", d: `${path}V${HEIGHT}H${x(history[0].seconds).toFixed(1)}Z` }));
  svg.append(make("path", { class: "line", d: path }));
  if (reference) svg.append(make("line", { class: "reference", x1: 0, x2: WIDTH, y1: y(reference), y2: y(reference) }));
  const tick = (words, place) => {
    const label = document.createElement("span");
    label.className = "tick";
    label.textContent = words;
    Object.assign(label.style, place);
    svg.parentNode.append(label);
  };
  tick(brief(first), { left: "2px", top: "0" });
  tick(`${end < 10 ? end.toFixed(1) : Math.round(end)} s`, { right: "0", top: "0" });
  svg.setAttribute("aria-label", `Cost over ${end.toFixed(0)} seconds: from ${brief(first)} to ${brief(last)}, ${history.length} points`);
}
