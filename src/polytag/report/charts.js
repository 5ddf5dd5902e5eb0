// Draws every chart of the page in the place of its picture, in the colours of the page, and again when these change.
"use strict";
(() => {
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const look = (width) => {
    const ink = value("--ink"), soft = value("--soft"), line = value("--line");
    const text = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
    return {
      background: null,
      font: getComputedStyle(document.body).fontFamily,
      view: { stroke: null },
      axis: { ...text, domainColor: soft, tickColor: soft, gridColor: line },
      legend: { ...text, labelLimit: 260, symbolOpacity: 1, columns: width < 480 ? 1 : 2 },
      rule: { color: ink },
      text: { color: ink },
      range: {
        category: [1, 2, 3, 4, 5, 6, 7, 8].map((number) => value(`--c${number}`)),
        diverging: [value("--c2"), value("--card"), value("--c1")],
      },
    };
  };
  const options = (width) => ({
    ast: true, actions: false, defaultStyle: false, renderer: "svg", config: look(width),
    tooltip: { disableDefaultStyle: true, sanitize: (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;") },
  });
  const views = [];
  const draw = async () => {
    views.splice(0).forEach((view) => view.finalize());
    for (const place of document.querySelectorAll("[data-chart]")) {
      const picture = place.parentElement.querySelector("img");
      try {
        const spec = JSON.parse(document.getElementById(place.dataset.chart).textContent);
        place.hidden = false;
        views.push((await window.vegaEmbed(place, spec, options(place.clientWidth))).view);
        if (picture) picture.hidden = true;
      } catch (error) {
        place.hidden = true;
        if (picture) picture.hidden = false;
        console.error(`${place.dataset.chart}: ${error}`);
      }
    }
    document.documentElement.dataset.charts = "drawn";
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
