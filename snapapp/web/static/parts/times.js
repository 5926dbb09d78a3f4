// For pages that the server makes, whose times are in UTC: converts them to the browser's time zone.

import { exactly, when } from "/static/parts/words.js";

for (const element of document.querySelectorAll("time[datetime]")) element.textContent = ("short" in element.dataset ? when : exactly)(element.dateTime);
