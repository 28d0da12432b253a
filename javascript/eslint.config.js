// Rules for the dashboard's modules, which browsers load as they are, and for their tests and tools, which run in Node.

import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import globals from "globals";

export default defineConfig([
  globalIgnores(["javascript/node_modules/"]),
  {
    files: ["**/*.js", "**/*.cjs", "**/*.mjs"],
    extends: [js.configs.recommended],
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "no-shadow": "error",
      "no-var": "error",
      "prefer-const": "error",
    },
  },
  { files: ["service/dashboard/**/*.js"], languageOptions: { globals: globals.browser } },
  { files: ["tests/javascript/**/*.js", "**/*.cjs", "**/*.mjs"], languageOptions: { globals: globals.node } },
]);
