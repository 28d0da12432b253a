// The page begins: each room takes its section, and hears from the others by the store.

import { startGates } from "./gates/gates_section.js";
import { startLive } from "./live/live_section.js";
import { startModels } from "./models/models_section.js";
import { startRow } from "./row/row_section.js";
import { startPageHeader } from "./shell/page_header.js";
import { startTheme } from "./shell/theme.js";
import { startTry } from "./try/try_section.js";

const body = (id) => document.querySelector(`#${id} > .body`);

startTheme();
startPageHeader(document.getElementById("bar"), document.getElementById("notice"));
startTry(body("try"));
startRow(body("row"));
startGates(body("gates"));
startLive(body("live"));
startModels(body("models"));
