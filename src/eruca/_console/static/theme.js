// Runs before the page is drawn, so that the chosen theme does not flash.
(() => {
  let theme = null;
  try { theme = localStorage.getItem("eruca-theme"); } catch { /* storage may be forbidden */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
