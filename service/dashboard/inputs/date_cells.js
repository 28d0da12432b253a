// Dates as cells of a table have them, in ISO 8601 or a format of Python's strptime, as days since 1970.

const MILLISECONDS_PER_DAY = 86_400_000;
const SECONDS_PER_DAY = 86_400;
const LAST_DAY = 2_932_896; // 9999-12-31
// what ISO_PATTERN of common/columns.py reads
const ISO_DAY = /^(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d)|-W(\d\d)(?:-(\d))?|W(\d\d)(\d)?)(?:[T ](.+))?$/;
const ISO_TIME =
  /^(\d\d)(?::(\d\d)(?::(\d\d(?:[.,]\d+)?))?|(\d\d)(\d\d(?:[.,]\d+)?)?)?(Z|([+-])([01]\d|2[0-3])(?::?([0-5]\d))?)?$/;
const MONTHS = [
  "January", "February", "March", "April", "May", "June",
  "July", "August", "September", "October", "November", "December",
]; // prettier-ignore
// directives of strptime that formats of columns may have
const DIRECTIVES = {
  Y: "(?<Y>\\d{4})",
  y: "(?<y>\\d\\d)",
  m: "(?<m>1[0-2]|0?[1-9])",
  d: "(?<d>3[01]|[12]\\d|0?[1-9]| [1-9])",
  H: "(?<H>2[0-3]|[01]?\\d)",
  M: "(?<M>[0-5]?\\d)",
  S: "(?<S>[0-5]?\\d)",
  b: `(?<b>${MONTHS.map((name) => name.slice(0, 3)).join("|")})`,
  B: `(?<B>${MONTHS.join("|")})`,
};

/**
 * The days since 1970, at UTC if the text has a zone; null if it is no date of this form.
 *
 * @param {string} text
 * @param {string} form  "iso", or a format of Python's strptime
 */
export function parseDate(text, form) {
  return form === "iso" ? parseIso(text) : parseFormat(text, form);
}

/**
 * A date in this form. Without a time of day, ISO 8601 has the day alone.
 *
 * @param {number} days  since 1970
 * @param {string} form
 */
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
  const match = ISO_DAY.exec(text);
  if (!match) return null;
  const [, year, month, day, plainMonth, plainDay, week, weekday, plainWeek, plainWeekday, time] = match;
  const weeks = week ?? plainWeek;
  const days = weeks
    ? dayOfWeek(Number(year), Number(weeks), Number(weekday ?? plainWeekday ?? 1))
    : daysOf([year, month ?? plainMonth, day ?? plainDay, 0, 0, 0].map(Number));
  const share = time === undefined ? 0 : shareOfDay(time);
  return days === null || share === null ? null : days + share;
}

/** The days since 1970 of a day (1 to 7) of a week, the first of which has the year's first Thursday. */
function dayOfWeek(year, week, day) {
  const fourth = daysOf([year, 1, 4, 0, 0, 0]);
  if (fourth === null || week < 1 || day < 1 || day > 7) return null;
  // 1970 began on a Thursday
  const thursday = fourth - ((((fourth + 3) % 7) + 7) % 7) + 3 + 7 * (week - 1);
  const isOfYear = new Date(thursday * MILLISECONDS_PER_DAY).getUTCFullYear() === year;
  const days = thursday - 4 + day;
  return isOfYear && days <= LAST_DAY ? days : null;
}

/** The time as a part of the day, at UTC if it has a zone; null for one that no clock shows. */
function shareOfDay(text) {
  const match = ISO_TIME.exec(text);
  if (!match) return null;
  const [, hour, minute, second, plainMinute, plainSecond, , sign, hours = 0, minutes = 0] = match;
  const clock = [hour, minute ?? plainMinute ?? 0, (second ?? plainSecond ?? "0").replace(",", ".")];
  const days = daysOf([1970, 1, 1, ...clock.map(Number)]);
  const offset = (Number(hours) * 60 + Number(minutes)) / 1440;
  return days === null ? null : days - (sign === "-" ? -offset : offset);
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

/**
 * The days since 1970 of a date and a time; null for one that no calendar has.
 *
 * @param {number[]} parts  year, month, day, hour, minute and second
 */
function daysOf(parts) {
  const [year, month, day, hour, minute, second] = parts;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  const exists = year > 0 && date.getUTCMonth() === month - 1 && date.getUTCDate() === day;
  if (!exists || hour > 23 || minute > 59 || second >= 60) return null;
  return date.getTime() / MILLISECONDS_PER_DAY + (hour * 3600 + minute * 60 + second) / SECONDS_PER_DAY;
}
