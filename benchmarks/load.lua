-- For wrk: posts the file BODY with the headers of HEADERS ("Name: value" lines) to each line of PATHS in turn,
-- and ends with one line of JSON.
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

-- without this function wrk makes its request once, which costs it less
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
  local wrong = summary.errors
  print(string.format(
    '{"requests":%d,"seconds":%f,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f,"lost":%d,"refused":%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, wrong.connect + wrong.read + wrong.write + wrong.timeout, wrong.status))
end
