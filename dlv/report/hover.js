"use strict";
// Values under the pointer: of each line the point whose step is nearest. The points are those
// that are drawn, so nothing is stored twice, and the page is complete without this.
const number = (value) => {
  const size = Math.abs(value);
  return size && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : String(+value.toPrecision(5));
};
for (const svg of document.querySelectorAll("svg.curves[data-scale]")) {
  const [left, right, bottom, top, x0, x1, y0, y1] = svg.dataset.scale.split(" ").map(Number);
  const log = "log" in svg.dataset;
  const out = svg.parentElement.querySelector(".readout");
  const guide = svg.querySelector(".guide");
  if (!out || !guide) continue;
  let lines = null;
  const read = () => [...svg.querySelectorAll("g[data-name]")].map((group) => {
    const paths = group.querySelectorAll("path:not(.raw)");
    const points = [];
    for (const path of paths) {
      const numbers = path.getAttribute("d").match(/-?[\d.]+/g) || [];
      for (let i = 0; i + 1 < numbers.length; i += 2) points.push([+numbers[i], +numbers[i + 1]]);
    }
    for (const dot of group.querySelectorAll("circle")) {
      points.push([+dot.getAttribute("cx"), +dot.getAttribute("cy")]);
    }
    return { name: group.dataset.name, about: group.dataset.about || "", points: points.sort((a, b) => a[0] - b[0]) };
  });
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (points[mid][0] < x) low = mid; else high = mid; }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  };
  svg.addEventListener("pointermove", (event) => {
    lines ??= read();
    const box = svg.getBoundingClientRect();
    const x = Math.min(right, Math.max(left, (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width));
    const step = x0 + (x - left) / (right - left) * (x1 - x0);
    guide.setAttribute("d", `M${x} ${top}V${bottom}`);
    out.textContent = `step ${Math.round(step).toLocaleString("en")}: ` + lines.filter((line) => line.points.length)
      .map((line) => {
        const share = (bottom - nearest(line.points, x)[1]) / (bottom - top);
        const value = y0 + share * (y1 - y0);
        return `${line.name} ${number(log ? 10 ** value : value)}${line.about && lines.length < 5 ? ` (${line.about})` : ""}`;
      }).slice(0, 12).join(" · ");
  });
  svg.addEventListener("pointerleave", () => { guide.setAttribute("d", ""); out.textContent = ""; });
}
