-- Script for wrk: posts the content of the file BODY, with the headers in HEADERS (lines "Name: value"), to the
-- paths in PATHS (one per line) in turn. At the end it prints the result as one line of JSON.
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()

for name, value in os.getenv("HEADERS"):gmatch("([^:\n]+): ([^\n]+)") do
  wrk.headers[name] = value
end

local paths = {}
for path in os.getenv("PATHS"):gmatch("[^\n]+") do
  paths[#paths + 1] = path
end
wrk.path = paths[1]

-- only for several paths: without this function wrk formats its request once, which takes less CPU time
if #paths > 1 then
  local requests, turn = {}, 0

  function init()
    for number, path in ipairs(paths) do
      requests[number] = wrk.format(nil, path)
    end
  end

  function request()
    turn = turn % #requests + 1
    return requests[turn]
  end
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"requests":%d,"seconds":%f,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f,"lost":%d,"refused":%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, errors.connect + errors.read + errors.write + errors.timeout, errors.status))
end
