// Entry point of the dashboard: starts every section. Sections exchange data only through state/store.js.

import { startGates } from "./gates/gates_section.js";
import { startLive } from "./live/live_section.js";
import { startModels } from "./models/models_section.js";
import { startRow } from "./row/row_section.js";
import { startSharedView } from "./share/shared_view.js";
import { startPageHeader } from "./shell/page_header.js";
import { startTheme } from "./shell/theme.js";
import { startTry } from "./try/try_section.js";

const sectionBody = (id) => document.querySelector(`#${id} > .body`);

startTheme();
startPageHeader(document.getElementById("bar"), document.getElementById("notice"));
startTry(sectionBody("try"));
startRow(sectionBody("row"));
startGates(sectionBody("gates"));
startLive(sectionBody("live"));
startModels(sectionBody("models"));
// last, so that each section knows a new model before it shows the row of the address
startSharedView();
