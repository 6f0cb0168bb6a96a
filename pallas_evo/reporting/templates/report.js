"use strict";
// Conveniences only: the page says all it has to say without them. No text of the page is ever read as markup.
(() => {
  // A link into a closed part opens what it lies in.
  const reveal = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    const own = target.querySelector(":scope > details");
    if (own) own.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Tables sort by any column whose cells carry a value.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.hasAttribute("data-sort")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = row => row.cells[column].getAttribute("data-v");
        const order = (a, b) => {
          if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
          const found = isNaN(a) || isNaN(b) ? b.localeCompare(a) : b - a;
          return down ? found : -found;
        };
        body.append(...[...body.rows].sort((a, b) => order(value(a) ?? "", value(b) ?? "")));
      });
    });
  }

  // Python in a few colours, when its part is opened.
  const words = new Set(("and as assert break class continue def del elif else except False finally for from global if " +
    "import in is lambda None nonlocal not or pass raise return True try while with yield").split(" "));
  const token = /(#[^\n]*)|("""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;
  const tint = code => {
    const text = code.textContent, made = document.createDocumentFragment();
    let done = 0;
    for (const found of text.matchAll(token)) {
      const kind = found[1] ? "c" : found[2] ? "s" : found[3] ? "d" : words.has(found[4]) ? "k" : "";
      if (!kind) continue;
      const span = document.createElement("span");
      span.className = kind;
      span.textContent = found[0];
      made.append(text.slice(done, found.index), span);
      done = found.index + found[0].length;
    }
    made.append(text.slice(done));
    code.replaceChildren(made);
  };
  document.addEventListener("toggle", event => {
    const code = event.target.open && event.target.querySelector(":scope > pre > code.python:not(.tinted)");
    if (code) { code.classList.add("tinted"); tint(code); }
  }, true);

  // A box that narrows the list of tasks, and two buttons.
  const list = document.getElementById("task-list");
  if (list) {
    const tools = document.createElement("div"), box = document.createElement("input");
    tools.className = "tools";
    box.type = "search";
    box.className = "search";
    box.placeholder = "Find a task";
    box.setAttribute("aria-label", "Find a task");
    const tasks = [...list.querySelectorAll("section.task")];
    box.addEventListener("input", () => {
      for (const task of tasks) task.hidden = !task.dataset.task.toLowerCase().includes(box.value.trim().toLowerCase());
    });
    tools.append(box);
    for (const [name, open] of [["Open all", true], ["Close all", false]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => {
        for (const task of tasks) if (!task.hidden) task.querySelector("details").open = open;
      });
      tools.append(button);
    }
    list.before(tools);
  }
})();
