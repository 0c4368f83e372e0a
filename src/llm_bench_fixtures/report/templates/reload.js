
/* While the run goes on: read the page anew, and leave it where it was, with what was unfolded. */
(() => {
  const KEY = "llm-bench-unfinished";
  const folds = [...document.querySelectorAll("details")];
  const name = (fold) => fold.querySelector("summary").textContent;
  const before = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
  if (before) {
    for (const fold of folds) fold.open = before.open.includes(name(fold));
    scrollTo(0, before.top);
  }
  const again = () => {
    const open = folds.filter((fold) => fold.open).map(name);
    sessionStorage.setItem(KEY, JSON.stringify({ open, top: scrollY }));
    location.reload();
  };
  setTimeout(again, 1000 * document.querySelector("[data-reload]").dataset.reload);
})();
