import assert from "node:assert/strict";
import test from "node:test";

import { dateText, parseDate } from "../../service/dashboard/inputs/date_cells.js";

const days = (text, form = "iso") => parseDate(text, form);

test("days count from 1970, also before it", () => {
  assert.equal(days("1970-01-01"), 0);
  assert.equal(days("1969-12-31"), -1);
  assert.equal(days("2000-03-01"), 11_017);
  assert.equal(days("0001-01-01"), -719_162);
  assert.equal(days("9999-12-31"), 2_932_896);
});

test("leap days exist in leap years alone", () => {
  assert.equal(days("2024-02-29"), days("2024-02-28") + 1);
  assert.equal(days("2000-02-29"), days("2000-03-01") - 1);
  for (const text of ["1900-02-29", "2023-02-29", "2024-02-30", "2024-04-31", "2024-00-10", "2024-01-00"])
    assert.equal(days(text), null, text);
});

test("the year 0, and years of two digits, are none of ISO 8601", () => {
  assert.equal(days("0000-01-01"), null);
  assert.equal(days("24-01-01"), null);
});

test("the time is a share of the day", () => {
  assert.equal(days("1970-01-01T06:00"), 0.25);
  assert.equal(days("1970-01-01 18:00:00.0"), 0.75);
  assert.equal(days("1970-01-01T12:00:00,5"), 0.5 + 0.5 / 86_400);
  for (const text of ["1970-01-01T24:00", "1970-01-01T12:60", "1970-01-01T12:00:60", "1970-01-01T"])
    assert.equal(days(text), null, text);
});

test("zones are converted to UTC, across midnight and the new year", () => {
  assert.equal(days("1970-01-01T00:00+06:00"), -0.25);
  assert.equal(days("1969-12-31T18:00-06"), 0);
  assert.equal(days("1970-01-01T12:00Z"), 0.5);
});

test("weeks begin on Monday, and the first has the year's first Thursday", () => {
  assert.equal(days("1970-W01-4"), 0);
  assert.equal(days("2021-W01-1"), days("2021-01-04"));
  assert.equal(days("2020-W53-7"), days("2021-01-03"));
  assert.equal(days("2021-W53"), null);
});

test("formats of strptime", () => {
  assert.equal(days("31.12.1969", "%d.%m.%Y"), -1);
  assert.equal(days("1/2/68", "%m/%d/%y"), days("2068-01-02"));
  assert.equal(days("1/2/69", "%m/%d/%y"), days("1969-01-02"));
  assert.equal(days("MAY 1, 2024", "%b %d, %Y"), days("2024-05-01"));
  assert.equal(days("29.02.2023", "%d.%m.%Y"), null);
  // a point of the format is a point of the text
  assert.equal(days("31x12x1969", "%d.%m.%Y"), null);
});

test("what is written is read again", () => {
  for (const form of ["iso", "%d.%m.%Y %H:%M:%S", "%B %d, %Y %H:%M:%S"])
    for (const day of [-719_162, -0.25, 0, 0.5, 11_016.125, 2_932_896])
      assert.equal(parseDate(dateText(day, form), form), day, `${day} as ${form}`);
  assert.equal(dateText(-0.5, "iso"), "1969-12-31T12:00:00");
  assert.equal(dateText(59, "%d %b %y"), "01 Mar 70");
});
