// Dates as cells of a table have them, in ISO 8601 or a format of Python's strptime, as days since 1970.

const MILLISECONDS_PER_DAY = 86_400_000;
const SECONDS_PER_DAY = 86_400;
const ISO_PATTERN =
  /^(\d{4})-?(\d\d)-?(\d\d)(?:\D(\d\d)(?::?(\d\d)(?::?(\d\d(?:[.,]\d+)?))?)?(Z|[+-]\d\d:?\d\d)?)?$/i;
const MONTHS = [
  "January", "February", "March", "April", "May", "June",
  "July", "August", "September", "October", "November", "December",
]; // prettier-ignore
// directives of strptime that formats of columns may have
const DIRECTIVES = {
  Y: "(?<Y>\\d{4})",
  y: "(?<y>\\d\\d)",
  m: "(?<m>1[0-2]|0?[1-9])",
  d: "(?<d>3[01]|[12]\\d|0?[1-9])",
  H: "(?<H>2[0-3]|[01]?\\d)",
  M: "(?<M>[0-5]?\\d)",
  S: "(?<S>[0-5]?\\d)",
  b: `(?<b>${MONTHS.map((name) => name.slice(0, 3)).join("|")})`,
  B: `(?<B>${MONTHS.join("|")})`,
};

/** The days since 1970, at UTC if the text has a zone; null if it is no date of this form. */
export function parseDate(text, form) {
  return form === "iso" ? parseIso(text) : parseFormat(text, form);
}

/** A date in this form. Without a time of day, ISO 8601 has the day alone. */
export function dateText(days, form) {
  const seconds = Math.round(days * SECONDS_PER_DAY);
  const moment = new Date(seconds * 1000).toISOString();
  const [day, time] = [moment.slice(0, 10), moment.slice(11, 19)];
  if (form === "iso") return seconds % SECONDS_PER_DAY === 0 ? day : `${day}T${time}`;
  const [Y, m, d] = day.split("-");
  const [H, M, S] = time.split(":");
  const B = MONTHS[Number(m) - 1];
  const parts = { Y, y: Y.slice(2), m, d, H, M, S, b: B.slice(0, 3), B };
  return form.replace(/%(\w)/g, (directive, letter) => parts[letter] ?? directive);
}

function parseIso(text) {
  const match = ISO_PATTERN.exec(text);
  if (!match) return null;
  const [, year, month, day, hour = 0, minute = 0, second = "0", zone = "Z"] = match;
  const days = daysOf([year, month, day, hour, minute, second.toString().replace(",", ".")].map(Number));
  if (days === null || zone.toUpperCase() === "Z") return days;
  const offset = Number(zone.slice(1, 3)) * 60 + Number(zone.slice(-2));
  return days - ((zone[0] === "-" ? -1 : 1) * offset) / 1440;
}

function parseFormat(text, form) {
  const source = form
    .replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
    .replace(/%(\w)/g, (directive, letter) => DIRECTIVES[letter] ?? directive)
    .replace(/\s+/g, "\\s+");
  const found = new RegExp(`^${source}$`, "i").exec(text)?.groups;
  if (!found) return null;
  const { Y, y, m, d = 1, H = 0, M = 0, S = 0, b, B } = found;
  // two digits are 1969 to 2068, as in POSIX
  const year = Y ?? Number(y) + (Number(y) < 69 ? 2000 : 1900);
  const month = m ?? 1 + MONTHS.findIndex((name) => startsWith(name, B ?? b));
  return daysOf([year, month, d, H, M, S].map(Number));
}

function startsWith(name, beginning = "") {
  return name.toLowerCase().startsWith(beginning.toLowerCase());
}

/** The days since 1970 of a date and a time; null for one that no calendar has. */
function daysOf([year, month, day, hour, minute, second]) {
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  const exists = year > 0 && date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
  if (!exists || hour > 23 || minute > 59 || second >= 60) return null;
  return date.getTime() / MILLISECONDS_PER_DAY + (hour * 3600 + minute * 60 + second) / SECONDS_PER_DAY;
}
