// The page begins: each room takes its section, and hears from the others by the store.

import { startGates } from "./gates.js";
import { startLive } from "./live.js";
import { startModels } from "./models.js";
import { startRow } from "./row.js";
import { startShell } from "./shell.js";
import { startTheme } from "./theme.js";
import { startTry } from "./try.js";

const body = (id) => document.querySelector(`#${id} > .body`);

startTheme();
startShell(document.getElementById("bar"), document.getElementById("notice"));
startTry(body("try"));
startRow(body("row"));
startGates(body("gates"));
startLive(body("live"));
startModels(body("models"));
