"use strict";
(() => {
  const RULER = 26, MAX_DEPTH = 8;
  const time = (ns, digits = 4) => {
    const size = Math.abs(ns);
    const [unit, scale] = size < 1e3 ? ["ns", 1] : size < 1e6 ? ["µs", 1e3] : size < 1e9 ? ["ms", 1e6] : ["s", 1e9];
    return `${+(ns / scale).toPrecision(digits)} ${unit}`;
  };
  const clip = (g, text, room) => {
    if (g.measureText(text).width <= room) return text;
    let low = 0, high = text.length;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (g.measureText(text.slice(0, mid) + "…").width <= room) low = mid; else high = mid - 1;
    }
    return low ? text.slice(0, low) + "…" : "";
  };

  const start = panel => {
    const data = JSON.parse(panel.querySelector("script").textContent);
    const canvas = panel.querySelector("canvas"), g = canvas.getContext("2d");
    const picked = panel.querySelector(".picked"), kindBox = panel.querySelector(".kinds");
    const n = data.start.length;
    const begin = new Float64Array(n), end = new Float64Array(n);
    for (let i = 0, t = 0; i < n; i++) { t += data.start[i]; begin[i] = t; end[i] = t + data.dur[i] }
    const count = i => data.count ? data.count[i] : 1, critical = i => !!data.critical && data.critical[i] === 1;
    const whole = Math.max(data.span, 1);

    // Spans that overlap within a lane are stacked, as a call lies on its caller.
    const depth = new Uint8Array(n), lanes = data.lanes.map(() => ({ spans: [], ends: [], rows: 1 }));
    for (let i = 0; i < n; i++) {
      const lane = lanes[data.lane[i]];
      let d = lane.ends.findIndex(e => e <= begin[i]);
      if (d < 0) d = Math.min(lane.ends.length, MAX_DEPTH - 1);
      lane.ends[d] = Math.max(lane.ends[d] || 0, end[i]);
      lane.rows = Math.max(lane.rows, d + 1);
      depth[i] = d;
      lane.spans.push(i);
    }
    // Many lanes get lower rows, so that hundreds of them still make a picture.
    const rows = lanes.reduce((sum, lane) => sum + lane.rows, 0);
    const ROW = Math.max(6, Math.min(19, Math.floor(1000 / rows))), GAP = ROW > 12 ? 3 : 1;
    let bottom = RULER;
    for (const lane of lanes) { lane.top = bottom + GAP + 1; bottom = lane.top + lane.rows * ROW + GAP }

    let from = 0, to = whole, width = 0, gutter = 120, colours = {}, hover = -1, chosen = -1;
    let onlyCritical = false, wanted = "", off = new Set(), matches = null, pending = false;

    const read = () => {
      const style = getComputedStyle(document.documentElement);
      const get = name => style.getPropertyValue("--" + name).trim();
      colours = { ink: get("ink"), soft: get("soft"), faint: get("faint"), rule: get("rule"), grid: get("grid"), card: get("card") };
      colours.kinds = data.kinds.map((_, k) => get("c" + k % 8));
      colours.words = colours.kinds.map(hue => {
        const [r, green, b] = [1, 3, 5].map(at => parseInt(hue.slice(at, at + 2), 16));
        return .3 * r + .59 * green + .11 * b > 120 ? "#10151a" : "#ffffff";
      });
      kindBox.querySelectorAll("i").forEach((el, k) => { el.style.background = colours.kinds[k] });
    };
    const x = t => gutter + (t - from) / (to - from) * (width - gutter);
    const t = px => from + (px - gutter) / (width - gutter) * (to - from);

    const draw = () => {
      pending = false;
      const ratio = devicePixelRatio || 1, height = bottom + 4;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = height + "px";
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.fillStyle = colours.card;
      g.fillRect(0, 0, width, height);
      g.font = "11px system-ui, sans-serif";
      g.textBaseline = "middle";
      drawRuler(height);
      g.save();
      g.beginPath();
      g.rect(gutter, RULER, width - gutter, height);
      g.clip();
      for (const lane of lanes) drawLane(lane);
      g.restore();
      g.textAlign = "right";
      let free = 0;
      lanes.forEach((lane, l) => {
        g.fillStyle = colours.rule;
        g.fillRect(0, lane.top - GAP - 1, width, 1);
        if (lane.top < free) return;  // a name that would run into the one above
        free = lane.top + 12;
        g.fillStyle = colours.soft;
        g.fillText(clip(g, data.lanes[l], gutter - 14), gutter - 8, lane.top + Math.max(ROW / 2 - 1, 4));
      });
      g.textAlign = "left";
    };
    const drawRuler = height => {
      const rough = (to - from) / Math.max(2, (width - gutter) / 100), power = 10 ** Math.floor(Math.log10(rough));
      const step = Math.max(1, [1, 2, 5, 10].map(m => m * power).find(s => s >= rough));
      const unit = to > 2e9 ? ["s", 1e9] : to > 2e6 ? ["ms", 1e6] : to > 2e3 ? ["µs", 1e3] : ["ns", 1];
      const digits = Math.max(0, -Math.floor(Math.log10(step / unit[1]) + 1e-9));
      for (let k = Math.ceil(from / step); k * step <= to; k++) {
        const at = Math.round(x(k * step));
        g.fillStyle = colours.grid;
        g.fillRect(at, RULER - 4, 1, height);
        const label = `${(k * step / unit[1]).toFixed(digits)} ${unit[0]}`, room = g.measureText(label).width / 2;
        g.fillStyle = colours.soft;
        if (at - room > 0) g.fillText(label, Math.min(at - room, width - 2 * room), RULER / 2 - 2);
      }
    };
    const strength = i => {
      if (off.has(data.kind[i])) return .06;
      if (matches && !matches.has(data.name[i])) return .13;
      return onlyCritical && !critical(i) ? .16 : 1;
    };
    const drawLane = lane => {
      const drawn = new Float64Array(lane.rows).fill(-1), last = new Int16Array(lane.rows).fill(-1);
      for (const i of lane.spans) {
        if (end[i] < from) continue;
        if (begin[i] > to) break;
        const d = depth[i], a = Math.max(x(begin[i]), gutter - 2), b = Math.min(x(end[i]), width + 2);
        // Below a pixel and of the colour already there: nothing would change.
        if (b < drawn[d] && last[d] === data.kind[i] && !matches && !onlyCritical) continue;
        const w = Math.max(b - a - (b - a > 3 ? .6 : 0), .9), y = lane.top + d * ROW, s = strength(i);
        g.globalAlpha = s;
        g.fillStyle = colours.kinds[data.kind[i]];
        if (count(i) > 1 && end[i] > begin[i]) {
          // A block of many: pale over its extent, solid as high as its spans were busy.
          const busy = Math.max(1, Math.min(1, data.ran[i] / (end[i] - begin[i])) * (ROW - GAP));
          g.globalAlpha = s * .22;
          g.fillRect(a, y, w, ROW - GAP);
          g.globalAlpha = s;
          g.fillRect(a, y + ROW - GAP - busy, w, busy);
        } else g.fillRect(a, y, w, ROW - GAP);
        drawn[d] = a + Math.max(w, 1);
        last[d] = data.kind[i];
        if (onlyCritical && critical(i) && w > 2) {
          g.strokeStyle = colours.ink;
          g.strokeRect(a + .5, y + .5, w - 1, ROW - GAP - 1);
        }
        if (i === hover || i === chosen) {
          g.globalAlpha = 1;
          g.lineWidth = 2;
          g.strokeStyle = colours.ink;
          g.strokeRect(a, y, w, ROW - GAP);
          g.lineWidth = 1;
        }
        if (w > 46 && ROW > 12) {
          g.fillStyle = s < 1 || count(i) > 1 ? colours.ink : colours.words[data.kind[i]];
          g.globalAlpha = Math.max(s, .4);
          g.fillText(clip(g, title(i), w - 10), a + 5, y + (ROW - GAP) / 2 + .5);
        }
      }
      g.globalAlpha = 1;
    };
    const title = i => count(i) > 1 ? `${data.names[data.name[i]]} + ${(count(i) - 1).toLocaleString("en")} more` : data.names[data.name[i]];
    const lines = i => [
      title(i),
      `${data.kinds[data.kind[i]]} · ${count(i) > 1 ? time(data.ran[i]) + " of " : ""}${time(end[i] - begin[i])}${critical(i) ? " · on the critical path" : ""}`,
      `${data.lanes[data.lane[i]]} · at ${time(begin[i], 6)}`,
    ];
    const later = () => { if (!pending) { pending = true; requestAnimationFrame(draw) } };

    const find = (px, py) => {
      const lane = lanes.find(l => py >= l.top - 2 && py < l.top + l.rows * ROW + 2);
      if (!lane || px < gutter) return -1;
      let best = -1, least = 4;
      for (const i of lane.spans) {
        const y = lane.top + depth[i] * ROW;
        if (py < y - 1 || py > y + ROW) continue;
        const away = Math.max(x(begin[i]) - px, px - x(end[i]), 0);
        if (away < least) { least = away; best = i }
      }
      return best;
    };
    const limit = () => {
      const least = Math.min(whole, 50), size = Math.min(Math.max(to - from, least), whole);
      from = Math.min(Math.max(from, 0), whole - size);
      to = from + size;
    };
    const zoom = (factor, px = (gutter + width) / 2) => {
      const at = t(Math.max(px, gutter));
      from = at - (at - from) * factor;
      to = at + (to - at) * factor;
      limit();
      later();
    };
    const pan = px => {
      const shift = px / (width - gutter) * (to - from);
      from -= shift;
      to -= shift;
      limit();
      later();
    };
    const place = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top] };

    // Drag with one pointer, pinch with two.
    const pointers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", event => {
      pointers.set(event.pointerId, place(event));
      canvas.setPointerCapture(event.pointerId);
      moved = 0;
    });
    canvas.addEventListener("pointermove", event => {
      const [px, py] = place(event), before = pointers.get(event.pointerId);
      if (!before) {
        const i = find(px, py);
        if (i !== hover) { hover = i; later() }
        if (i < 0) gnomonTip.hide(); else gnomonTip.show(lines(i).join("\n"), event.clientX, event.clientY);
        return;
      }
      gnomonTip.hide();
      if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const was = Math.abs(before[0] - other[0]) + 1, now = Math.abs(px - other[0]) + 1;
        zoom(was / now, (px + other[0]) / 2);
      } else pan(px - before[0]);
      moved += Math.abs(px - before[0]) + Math.abs(py - before[1]);
      pointers.set(event.pointerId, [px, py]);
    });
    const lift = event => {
      if (event.type === "pointerup" && moved < 5) {
        chosen = find(...place(event));
        if (chosen >= 0) {
          const [name, ...rest] = lines(chosen), strong = document.createElement("b");
          strong.textContent = name;
          picked.replaceChildren(strong, " · " + rest.join(" · "));
        }
        later();
      }
      pointers.delete(event.pointerId);
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => { hover = -1; gnomonTip.hide(); later() });
    canvas.addEventListener("dblclick", event => zoom(.4, place(event)[0]));
    canvas.addEventListener("wheel", event => {
      // A page that is only scrolled past must keep scrolling: the wheel is ours after a click.
      if (document.activeElement !== canvas && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(-event.deltaX);
      else zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) * (event.ctrlKey ? .012 : .004)), place(event)[0]);
    }, { passive: false });
    canvas.addEventListener("keydown", event => {
      const step = { ArrowLeft: 80, ArrowRight: -80 }[event.key];
      if (step) pan(step);
      else if (event.key === "+" || event.key === "=") zoom(.6);
      else if (event.key === "-") zoom(1 / .6);
      else if (event.key === "0") { from = 0; to = whole; later() }
      else return;
      event.preventDefault();
    });
    panel.querySelector(".tools").addEventListener("click", event => {
      const what = event.target.dataset.do;
      if (what === "in") zoom(.5);
      if (what === "out") zoom(2);
      if (what === "all") { from = 0; to = whole; later() }
      if (what === "critical") {
        onlyCritical = !onlyCritical;
        event.target.setAttribute("aria-pressed", onlyCritical);
        later();
      }
    });
    panel.querySelector(".find").addEventListener("input", event => {
      wanted = event.target.value.trim().toLowerCase();
      matches = wanted ? new Set(data.names.flatMap((name, i) => name.toLowerCase().includes(wanted) ? [i] : [])) : null;
      later();
    });

    data.kinds.forEach((kind, k) => {
      const item = document.createElement("button"), swatch = document.createElement("i"), total = document.createElement("span");
      item.type = "button";
      item.setAttribute("aria-pressed", "true");
      total.textContent = " " + time(data.busy[k], 3);
      item.append(swatch, kind, total);
      item.title = "Total over all lanes. Click to dim or show.";
      item.addEventListener("click", () => {
        if (!off.delete(k)) off.add(k);
        item.setAttribute("aria-pressed", !off.has(k));
        later();
      });
      kindBox.append(item);
    });
    document.addEventListener("themechange", () => { read(); later() });
    new ResizeObserver(() => {
      if (canvas.clientWidth === width) return;
      width = canvas.clientWidth;
      g.font = "11px system-ui, sans-serif";
      const longest = Math.max(...data.lanes.map(name => g.measureText(name).width), 20);
      gutter = Math.round(Math.min(longest + 16, width * (width < 500 ? .3 : .24)));
      later();
    }).observe(canvas);
    read();
  };
  document.querySelectorAll(".timeline").forEach(start);
})();
