// Curves that can be zoomed and smoothed, in place of the drawings that the server sent.
const COLORS = () => {
  const style = getComputedStyle(document.documentElement);
  return [...Array(8).keys()].map((n) => style.getPropertyValue(`--c${n}`).trim());
};
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
const address = new URL(location.href);
const state = {
  smooth: +(address.searchParams.get("smooth") || 0),
  log: address.searchParams.get("log") === "1",
  x: address.searchParams.get("x") || "step",
};
const remember = () => {
  for (const [key, value, plain] of [["smooth", state.smooth, 0], ["log", state.log ? 1 : 0, 0], ["x", state.x, "step"]]) {
    value === plain ? address.searchParams.delete(key) : address.searchParams.set(key, value);
  }
  history.replaceState(history.state, "", address);
};

const number = (value) => {
  if (value == null) return "–";
  const size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : String(+value.toPrecision(5));
};

// A moving average that forgets exponentially, as TensorBoard's.
const smoothed = (values, weight) => {
  if (!weight) return values;
  let last = 0, share = 1;
  return values.map((value) => {
    if (value == null || !Number.isFinite(value)) return value;
    last = last * weight + (1 - weight) * value;
    share *= weight;
    return last / (1 - share);
  });
};

// One list of places for all lines, as uPlot wants it; where a line has no point there is a gap.
const joined = (lines) => {
  const place = (line, at) => state.x === "wall" ? line.walls[at] : state.x === "relative" ? line.walls[at] - line.walls[0] : line.steps[at];
  const places = [...new Set(lines.flatMap((line) => line.steps.map((_, at) => place(line, at))))].sort((a, b) => a - b);
  const index = new Map(places.map((x, at) => [x, at]));
  const rows = lines.map((line) => {
    const row = Array(places.length).fill(undefined);
    const values = smoothed(line.values, state.smooth);
    values.forEach((value, at) => { row[index.get(place(line, at))] = state.log && !(value > 0) ? null : value; });
    return row;
  });
  return [places, ...rows];
};

const drawn = new Map(); // element -> {plot, lines}

const draw = (box, name, lines) => {
  drawn.get(box)?.plot?.destroy();
  box.querySelector(".u-place")?.remove();
  const place = document.createElement("div");
  place.className = "u-place";
  box.append(place);
  const colors = COLORS(), style = getComputedStyle(document.documentElement);
  const soft = style.getPropertyValue("--soft").trim(), grid = style.getPropertyValue("--grid").trim();
  const axis = { stroke: soft, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, font: "11px system-ui" };
  const time = state.x === "wall";
  const told = document.createElement("p");
  told.className = "readout";
  const single = lines.every((line) => line.steps.length < 2);
  const plot = new uPlot({
    width: Math.max(240, box.clientWidth), height: 240, title: name,
    scales: { x: { time }, y: state.log ? { distr: 3 } : {} },
    axes: [{ ...axis, size: 34 }, { ...axis, size: 62, values: (_, marks) => marks.map((mark) => mark == null ? "" : number(mark)) }],
    cursor: { drag: { x: true, y: false }, focus: { prox: 24 } }, focus: { alpha: .3 },
    legend: { live: true },
    series: [
      { label: time ? "time" : state.x === "relative" ? "seconds" : "step", value: (_, value) => value == null ? "" : time ? new Date(value * 1000).toLocaleString() : number(value) },
      ...lines.map((line, at) => ({
        label: line.label,
        stroke: colors[at % 8], width: 1.6, dash: DASHES[(at >> 3) % 4], spanGaps: true,
        points: { show: single || lines.length < 3 && line.steps.length < 40, size: single ? 7 : 4 },
        value: (_, value) => number(value),
      })),
    ],
    hooks: { setSeries: [(_, at) => { told.textContent = at && lines[at - 1].about ? `${lines[at - 1].label}: ${lines[at - 1].about}` : ""; }], setSelect: [(plot) => finer(box, plot)], ready: [(plot) => plot.root.addEventListener("dblclick", () => { reload(box); })] },
  }, joined(lines), place);
  place.append(told);
  plot.root.setAttribute("role", "img");
  plot.root.setAttribute("aria-label", `${name}, by ${state.x}`);
  drawn.set(box, { plot, lines, name });
};

// A part of a long curve has more points than the whole had room for.
const finer = async (box, plot) => {
  const { name, lines } = drawn.get(box), source = box.closest("[data-curves]");
  if (!source || state.x !== "step" || !lines.some((line) => line.thinned)) return;
  const low = Math.floor(plot.posToVal(plot.select.left, "x")), high = Math.ceil(plot.posToVal(plot.select.left + plot.select.width, "x"));
  if (!(high > low)) return;
  const told = await read(`${source.dataset.curves}&metric=${encodeURIComponent(name)}&steps=${low}:${high}`);
  if (told && told.metrics[name]) draw(box, name, told.metrics[name]);
};
const reload = async (box) => {
  const { name, lines } = drawn.get(box), source = box.closest("[data-curves]");
  const told = source && lines.some((line) => line.whole === false) ? await read(`${source.dataset.curves}&metric=${encodeURIComponent(name)}`) : null;
  draw(box, name, told ? told.metrics[name] : lines);
};
const read = async (from) => {
  const answer = await fetch(from).catch(() => null);
  return answer && answer.status === 200 ? answer.json() : null;
};
const redraw = () => { for (const [box, { name, lines }] of drawn) draw(box, name, lines); };

const controls = (host) => {
  const bar = document.createElement("div");
  bar.className = "controls";
  const field = (name, made) => { const label = document.createElement("label"); label.append(name, " ", made); bar.append(label); return made; };
  const smooth = Object.assign(document.createElement("input"), { type: "range", min: 0, max: .99, step: .01, value: state.smooth });
  const shown = document.createElement("span");
  shown.textContent = state.smooth;
  field("Smooth", smooth).after(shown);
  smooth.addEventListener("input", () => { state.smooth = +smooth.value; shown.textContent = smooth.value; remember(); redraw(); });
  const log = field("Log scale", Object.assign(document.createElement("input"), { type: "checkbox", checked: state.log }));
  log.addEventListener("change", () => { state.log = log.checked; remember(); redraw(); });
  const x = document.createElement("select");
  for (const [value, name] of [["step", "step"], ["wall", "wall time"], ["relative", "time since start"]]) {
    x.append(new Option(name, value, value === state.x, value === state.x));
  }
  field("By", x).addEventListener("change", () => { state.x = x.value; remember(); redraw(); });
  const hint = document.createElement("span");
  hint.textContent = "Drag to zoom, double-click to show all";
  bar.append(hint);
  host.before(bar);
};

const fill = (host, metrics) => {
  // All boxes first: how wide one is depends on the others.
  const boxes = new Map(Object.keys(metrics).map((name) => {
    let box = [...host.children].find((child) => child.dataset.metric === name);
    if (!box) {
      box = document.createElement("div");
      box.className = "chart"; box.dataset.metric = name;
      const title = document.createElement("h3");
      title.textContent = name;
      box.append(title);
      host.append(box);
    }
    return [name, box];
  }));
  for (const [name, lines] of Object.entries(metrics)) {
    const box = boxes.get(name);
    const old = drawn.get(box);
    if (old && old.lines.length === lines.length && old.name === name && host.dataset.live) {
      old.lines = lines;
      old.plot.setData(joined(lines), true);
    } else draw(box, name, lines);
  }
};

const ready = async () => {
  for (const host of document.querySelectorAll("[data-curves]")) {
    const told = await read(host.dataset.curves);
    if (!told || !Object.keys(told.metrics).length) continue;
    const numbers = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "Numbers";
    numbers.append(summary, ...[...host.querySelectorAll("h3, .table")].map((part) => part.cloneNode(true)));
    host.replaceChildren();
    controls(host);
    fill(host, told.metrics);
    if (numbers.children.length > 1) host.after(numbers);
  }
  for (const host of document.querySelectorAll("[data-live]")) follow(host);
};

// A training that goes on: asked twice a second, and answered only when something is new.
const follow = async (host) => {
  const status = document.querySelector("[data-status]");
  let seen = "", begun = false;
  for (;;) {
    if (!document.hidden) {
      const answer = await fetch(`${host.dataset.live}&seen=${encodeURIComponent(seen)}`).catch(() => null);
      if (answer && answer.status === 200) {
        const told = await answer.json();
        seen = told.seen;
        if (!begun && Object.keys(told.metrics).length) { controls(host); begun = true; }
        fill(host, told.metrics);
        if (status) status.textContent = `${told.points.toLocaleString("en")} points, last change ${new Date().toLocaleTimeString()}`;
      } else if (!answer && status) status.textContent = "The server has ended";
    }
    await new Promise((done) => setTimeout(done, 500));
  }
};

let wide = 0;
addEventListener("resize", () => { clearTimeout(wide); wide = setTimeout(redraw, 150); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
if (document.readyState === "complete") ready(); else addEventListener("load", ready);
