"use strict";
(() => {
  // Theme: what the system says until the reader presses the button.
  const root = document.documentElement, button = document.getElementById("theme");
  const media = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (media.matches ? "dark" : "light")) === "dark";
  const themed = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    document.dispatchEvent(new Event("themechange"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("gnomon-theme", root.dataset.theme) } catch (e) { /* a file page may not store */ }
    themed();
  });
  media.addEventListener("change", themed);
  themed();

  // One tooltip for everything. Text only: names come from traces and are nobody's markup.
  const tip = document.getElementById("tip");
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.style.display = "block";
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - w - 8)) + "px";
    tip.style.top = (y + 18 + h > innerHeight ? y - h - 12 : y + 18) + "px";
  };
  const hideTip = () => { tip.style.display = "none" };
  window.gnomonTip = { show: showTip, hide: hideTip };

  // Charts: the mark nearest to the pointer speaks.
  for (const svg of document.querySelectorAll("svg.chart")) {
    const marks = [...svg.querySelectorAll(".mark")].map(el => {
      const title = el.querySelector("title"), text = title.textContent;
      title.remove();  // else the browser's own tooltip would come on top of ours
      el.setAttribute("aria-label", text.replace("\n", ", "));
      return { el, text, x: +el.dataset.x, y: +el.dataset.y };
    });
    let on = null;
    const leave = () => { if (on) on.el.classList.remove("on"); on = null; hideTip() };
    svg.addEventListener("pointermove", event => {
      let best = null, least = 40 * 40;
      const direct = event.target.closest(".mark");
      if (direct) best = marks.find(m => m.el === direct);
      else {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        for (const m of marks) {
          const d = (m.x - at.x) ** 2 + (m.y - at.y) ** 2;
          if (d < least) { least = d; best = m }
        }
      }
      if (best !== on) { leave(); on = best; if (on) on.el.classList.add("on") }
      if (on) showTip(on.text, event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", leave);
  }

  // Tables: a click on a head sorts, the box filters.
  for (const table of document.querySelectorAll(".scroll table")) {
    const body = table.tBodies[0], panel = table.closest(".panel");
    const rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    const key = (row, column) => {
      const cell = row.cells[column];
      if (cell.dataset.v === undefined) return cell.textContent;
      return cell.dataset.v === "" ? NaN : +cell.dataset.v;
    };
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const number = head.classList.contains("n"), now = head.getAttribute("aria-sort");
      const up = now === "none" ? !number : now === "descending";
      heads.forEach(h => h.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const sign = up ? 1 : -1, keys = new Map(rows.map(r => [r, key(r, column)]));
      const words = new Intl.Collator(undefined, { numeric: true }).compare;
      rows.sort((a, b) => {
        const x = keys.get(a), y = keys.get(b);
        if (!number) return sign * words(x, y);
        if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);  // gaps last, whichever way
        return sign * (x - y);
      });
      body.append(...rows);
    }));
    const find = panel.querySelector(".thead .find"), count = panel.querySelector(".count");
    if (!find) continue;
    const texts = new Map(rows.map(r => [r, r.textContent.toLowerCase()])), whole = count.textContent;
    find.addEventListener("input", () => {
      const wanted = find.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows) {
        row.hidden = !texts.get(row).includes(wanted);
        shown += !row.hidden;
      }
      count.textContent = wanted ? `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows` : whole;
    });
  }
})();
