// Keys, copying, choosing versions, the windowed table, completion. Every page works without it.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const MOST = 8; // versions that are compared at once
const base = document.body.dataset.base || ""; // of the addresses of one repository on a hub
const key = (name) => base ? `${name}:${base}` : name;

for (const button of $$("[data-copy]")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy).catch(() => {});
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1200);
  });
}

// Local times: the address and the server speak UTC.
const local = (root = document) => {
  for (const time of $$("time[datetime]", root)) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(+moment)) time.title = moment.toLocaleString();
  }
};
local();

// Chosen versions are kept while rows come and go, and while one goes back and forth.
const table = $(".models");
const chosen = new Set(JSON.parse(sessionStorage.getItem(key("dlv-chosen")) || "[]"));
const keep = () => sessionStorage.setItem(key("dlv-chosen"), JSON.stringify([...chosen]));
const mark = () => {
  for (const box of $$('input[name="v"]')) box.checked = chosen.has(box.value);
  const button = $("[data-choice] .choice button");
  if (button) button.textContent = chosen.size ? `Compare ${chosen.size} chosen version${chosen.size > 1 ? "s" : ""}` : "Compare chosen versions";
};
const compare = () => {
  if (chosen.size < 2) return;
  const query = new URLSearchParams([...chosen].map((label) => ["v", label]));
  location.assign(`${base}/compare?${query}`);
};
if (table) {
  table.addEventListener("change", (event) => {
    const box = event.target;
    if (box.name !== "v") return;
    if (box.checked && chosen.size >= MOST) { box.checked = false; return; }
    box.checked ? chosen.add(box.value) : chosen.delete(box.value);
    keep(); mark();
  });
  $("[data-choice]").addEventListener("submit", (event) => { event.preventDefault(); compare(); });
  mark();
  addEventListener("pageshow", mark);
}

// Only the rows near the view are in the page; the others are fetched.
if (table) {
  const total = +table.dataset.total, body = $("tbody", table), HEIGHT = 26, WINDOW = 120;
  let first = 0, last = body.rows.length, busy = false, again = false;
  const space = (count) => {
    if (count <= 0) return null;
    const row = document.createElement("tr");
    row.className = "space"; row.setAttribute("aria-hidden", "true");
    const cell = row.insertCell();
    cell.colSpan = 99; cell.style.height = `${count * HEIGHT}px`;
    return row;
  };
  const frame = () => {
    for (const row of $$("tr.space", body)) row.remove();
    const above = space(first), below = space(total - last);
    if (above) body.prepend(above);
    if (below) body.append(below);
  };
  if (total > last) { frame(); $(".more")?.remove(); }
  const look = async () => {
    if (busy) { again = true; return; }
    const top = Math.floor((scrollY - body.getBoundingClientRect().top - scrollY) / HEIGHT);
    const seen = Math.ceil(innerHeight / HEIGHT);
    const from = Math.max(0, top), to = Math.min(total, top + seen);
    if (to <= 0 || (from >= first && to <= last)) return;
    busy = true;
    const start = Math.max(0, from - WINDOW), count = seen + 2 * WINDOW;
    const address = `${table.dataset.rows}${table.dataset.rows.includes("?") ? "&" : "?"}from=${start}&count=${count}`;
    const answer = await fetch(address).catch(() => null);
    if (answer && answer.ok) {
      const parsed = new DOMParser().parseFromString(`<table><tbody>${await answer.text()}</tbody></table>`, "text/html");
      const rows = [...parsed.querySelectorAll("tbody > tr")];
      body.replaceChildren(...rows);
      first = start; last = start + rows.length;
      frame(); mark(); local(body);
    }
    busy = false;
    if (again) { again = false; look(); }
  };
  addEventListener("scroll", look, { passive: true });
  addEventListener("resize", look);
  look();
}

// Columns that were chosen once come back.
const columns = $("[data-columns]");
if (columns) {
  const field = $('input[name="columns"]', columns);
  columns.addEventListener("change", (event) => {
    if (event.target.name !== "column") return;
    const names = new Set(field.value.split(",").map((name) => name.trim()).filter(Boolean));
    event.target.checked ? names.add(event.target.value) : names.delete(event.target.value);
    field.value = [...names].join(",");
  });
  columns.addEventListener("submit", (event) => {
    event.preventDefault();
    localStorage.setItem(key("dlv-columns"), field.value);
    const query = new URLSearchParams(new FormData(columns));
    query.delete("column");
    if (!field.value) query.delete("columns");
    location.assign(`${columns.getAttribute("action")}?${query}`);
  });
}
const remembered = localStorage.getItem(key("dlv-columns"));
if (remembered) for (const link of $$("nav a[data-table]")) link.href = `${link.getAttribute("href")}?${new URLSearchParams({ columns: remembered })}`;

// Keys, unless something is being typed.
let here = -1;
const rows = () => $$(".models tbody tr:not(.space)");
const go = (step) => {
  const all = rows();
  if (!all.length) return;
  here = Math.max(0, Math.min(all.length - 1, here + step));
  all.forEach((row, place) => row.classList.toggle("here", place === here));
  all[here].scrollIntoView({ block: "nearest" });
  $("a", all[here])?.focus({ preventScroll: true });
};
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { const field = $("#search"); if (field) { event.preventDefault(); field.focus(); field.select?.(); } }
  else if (event.key === "j") go(1);
  else if (event.key === "k") go(-1);
  else if (event.key === "x" && rows()[here]) $('input[name="v"]', rows()[here])?.click();
  else if (event.key === "c" && table) compare();
});

// Completion: names of the repository below the field, by what stands before the cursor.
const completing = (field, ask) => {
  const list = document.createElement("ul");
  list.className = "options"; list.id = "options"; list.hidden = true;
  list.setAttribute("role", "listbox"); list.setAttribute("aria-label", "completions");
  field.parentElement.style.position = "relative";
  field.after(list);
  Object.entries({ role: "combobox", "aria-expanded": "false", "aria-controls": "options", "aria-autocomplete": "list" })
    .forEach(([key, value]) => field.setAttribute(key, value));
  let found = [], at = 0, turn = 0;
  const close = () => { list.hidden = true; field.setAttribute("aria-expanded", "false"); field.removeAttribute("aria-activedescendant"); };
  const paint = () => {
    list.replaceChildren(...found.map((item, place) => {
      const row = document.createElement("li");
      row.textContent = item.text; row.id = `option-${place}`;
      row.setAttribute("role", "option"); row.setAttribute("aria-selected", String(place === at));
      row.addEventListener("pointerdown", (event) => { event.preventDefault(); at = place; take(); });
      return row;
    }));
    list.hidden = !found.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    if (found.length) { field.setAttribute("aria-activedescendant", `option-${at}`); list.children[at].scrollIntoView({ block: "nearest" }); }
  };
  const take = () => {
    const item = found[at], end = field.selectionStart;
    field.setRangeText(item.text, end - item.replaced, end, "end");
    close(); field.focus(); field.dispatchEvent(new Event("input"));
  };
  const look = async () => {
    const mine = ++turn;
    const told = await ask(field.value.slice(0, field.selectionStart));
    if (mine !== turn) return;
    found = told.slice(0, 40); at = 0; paint();
  };
  field.addEventListener("input", look);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !list.hidden) { close(); event.stopPropagation(); }
    else if (list.hidden) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length; paint();
    } else if (event.key === "Tab" || (event.key === "Enter" && !event.ctrlKey && field.tagName === "INPUT" && found[at].replaced)) {
      event.preventDefault(); take();
    }
  });
};
const where = $("input[data-names]");
if (where) {
  const names = JSON.parse(where.dataset.names);
  completing(where, (before) => {
    const word = /(?:^|\band\s+)([^\s<>=!"']*)$/.exec(before);
    if (!word || !word[1]) return [];
    return names.filter((name) => name.startsWith(word[1]) && name !== word[1]).map((text) => ({ text, replaced: word[1].length }));
  });
}
const editor = $("textarea[data-complete]");
if (editor) {
  completing(editor, async (before) => {
    if (!before.trim()) return [];
    const answer = await fetch(`${editor.dataset.complete}?${new URLSearchParams({ text: before })}`).catch(() => null);
    return answer && answer.ok ? answer.json() : [];
  });
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); editor.form.requestSubmit(); }
  });
  const asked = JSON.parse(localStorage.getItem(key("dlv-queries")) || "[]");
  if (editor.value.trim() && !$(".fault")) {
    const kept = [editor.value.trim(), ...asked.filter((text) => text !== editor.value.trim())].slice(0, 20);
    localStorage.setItem(key("dlv-queries"), JSON.stringify(kept));
  }
  const history = $("[data-history]");
  if (asked.length) {
    history.hidden = false;
    $("ul", history).replaceChildren(...asked.slice(0, 10).map((text) => {
      const item = document.createElement("li"), link = document.createElement("a"), code = document.createElement("code");
      link.href = `${base}/query?${new URLSearchParams({ q: text })}`; code.textContent = text;
      link.append(code); item.append(link);
      return item;
    }));
  }
}

// Networks: find a layer, and show more or less of it.
for (const frame of $$(".network")) {
  const drawing = $("svg", frame);
  if (!drawing || frame.classList.contains("pair") || frame.classList.contains("deltas")) continue;
  const tools = document.createElement("div");
  tools.className = "tools";
  const label = document.createElement("label"), field = document.createElement("input"), status = document.createElement("span");
  label.append("Find a layer ", field); field.type = "search"; status.className = "soft"; status.setAttribute("role", "status");
  const base = drawing.viewBox.baseVal;
  let scale = 1;
  const button = (name, act) => { const made = document.createElement("button"); made.type = "button"; made.textContent = name; made.addEventListener("click", act); return made; };
  const resize = (to) => { scale = Math.max(.1, Math.min(3, to)); drawing.setAttribute("width", base.width * scale); drawing.setAttribute("height", base.height * scale); };
  tools.append(label, button("Larger", () => resize(scale * 1.25)), button("Smaller", () => resize(scale / 1.25)),
    button("Fit", () => resize(Math.min(1, frame.clientWidth / base.width))), status);
  frame.before(tools);
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    const hits = [];
    for (const layer of $$("g.layer", drawing)) {
      const hit = wanted !== "" && layer.textContent.toLowerCase().includes(wanted);
      layer.classList.toggle("hit", hit);
      if (hit) hits.push(layer);
    }
    status.textContent = wanted ? `${hits.length} found` : "";
    if (hits.length) hits[0].scrollIntoView({ block: "center", inline: "center" });
  });
}

// Parts that take longer than a page may: they come when they are ready, and may have such parts.
const bind = (root) => {
  for (const part of $$("[data-part]", root)) {
    const load = async () => {
      const answer = await fetch(part.dataset.part).catch(() => null);
      if (!answer) return;
      part.innerHTML = await answer.text();
      if (answer.status === 202) { setTimeout(load, 50); return; }
      part.removeAttribute("aria-busy");
      local(part);
      bind(part);
    };
    if ("now" in part.dataset) load();
    else $("button", part)?.addEventListener("click", () => { part.setAttribute("aria-busy", "true"); load(); }, { once: true });
  }
};
bind(document);

// A sweep that goes on is looked at again.
const again = $("[data-again]");
if (again) setInterval(() => { if (!document.hidden) location.reload(); }, 1000 * again.dataset.again);
