"use strict";
(() => {
  // Paper cannot be pointed at: samples and lists of relaxed tokens are opened for printing, and
  // folded again. The numbers of plots are in tables/.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll(".sample-card:not([open]), .answer details:not([open])")];
    for (const fold of folded) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of folded) fold.open = false;
  });

  const pop = document.getElementById("pop");
  if (!pop) return;
  const KINDS = { a: "accepted", x: "relaxed", r: "recovered", b: "bonus", s: "skipped", p: "plain" };
  let shown = null;

  const line = (label, value, isCode) => {
    const row = document.createElement("div");
    row.append(label);
    const what = document.createElement(isCode ? "code" : "b");
    what.textContent = value;
    row.append(what);
    return row;
  };

  const describe = (token) => {
    const { n, r, k, c } = token.dataset;
    const head = document.createElement("div");
    const kind = document.createElement("b");
    kind.textContent = KINDS[[...token.classList].find((name) => name in KINDS)];
    head.append(kind, ` · token ${n}`);
    const rows = [head, line("token ", token.textContent, true)];
    if (r !== undefined) rows.push(line("regret ", `${r} nats`));
    if (k !== undefined) rows.push(line("rank ", k === "0" ? "0 (best)" : k));
    if (c !== undefined) rows.push(line("target’s choice ", c, true));
    pop.replaceChildren(...rows);
  };

  const place = (token) => {
    // the first line of a token that runs over the end of one
    const box = token.getClientRects()[0];
    if (!box) return;
    const left = Math.min(Math.max(box.left, 12), innerWidth - pop.offsetWidth - 12);
    const above = box.top - pop.offsetHeight - 8;
    pop.style.left = `${Math.max(left, 12)}px`;
    pop.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  };

  const hide = () => {
    if (!shown) return;
    shown.classList.remove("on");
    shown.removeAttribute("aria-describedby");
    shown = null;
    pop.hidden = true;
  };

  const show = (token) => {
    if (shown === token) return;
    hide();
    shown = token;
    token.classList.add("on");
    token.setAttribute("aria-describedby", "pop");
    describe(token);
    pop.hidden = false;
    place(token);
  };

  const tokenAt = (event) => event.target instanceof Element && event.target.closest(".tokens .t");
  const focused = () => document.activeElement && document.activeElement.closest(".tokens .t");

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const token = tokenAt(event) || focused();
    if (token) show(token);
    else hide();
  });
  document.addEventListener("focusin", (event) => {
    const token = tokenAt(event);
    if (token) show(token);
    else hide();
  });
  document.addEventListener("click", (event) => {
    const token = tokenAt(event);
    if (token) show(token);
    else hide();
  });
  addEventListener("scroll", () => shown && place(shown), { passive: true });
  addEventListener("resize", () => shown && place(shown));

  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const token = tokenAt(event);
    if (!token || !(event.key in STEPS)) return;
    const all = [...token.parentElement.children];
    const next = all[all.indexOf(token) + STEPS[event.key]];
    if (!next) return;
    event.preventDefault();
    token.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
})();
