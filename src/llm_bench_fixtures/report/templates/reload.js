
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
  const note = document.querySelector("[data-reload]");
  const { reload, written } = note.dataset;
  const silent = Math.floor((Date.now() / 1000 - written) / 60);
  const isSilent = silent >= 30; // minutes, in which the run may have been killed
  if (isSilent) {
    const report = "`llm-bench report FOLDER`, with this page's folder, reports what it measured";
    note.textContent = `No news for ${silent} min. If the run was killed, ${report}.`;
  }
  setTimeout(again, (isSilent ? 10_000 : 1000) * reload); // a run that is suspended may go on
})();
