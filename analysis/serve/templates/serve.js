"use strict";
// Shows times of the last day as an age as well.
(() => {
  const age = seconds => seconds < 90 ? `${Math.round(seconds)} s ago`
    : seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
  for (const time of document.querySelectorAll("time[datetime*='T']")) {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    if (seconds >= 0 && seconds < 86400) time.title = age(seconds);
  }
})();
