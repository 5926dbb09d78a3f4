// On pages that the server makes: it knows no place, and says times in UTC; here they become those of this place.

import { exactly, when } from "/static/words.js";

for (const element of document.querySelectorAll("time[datetime]")) element.textContent = ("short" in element.dataset ? when : exactly)(element.dateTime);
