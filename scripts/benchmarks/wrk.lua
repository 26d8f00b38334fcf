-- GETs of the paths in the file BENCH_PATHS, at random where there are several, with the fields NAME=VALUE; of
-- BENCH_FIELDS. With BENCH_NEW_HEADS each has a header field with another number, and with BENCH_PAUSE each connection
-- waits for so many milliseconds before each. Prints one line of JSON at the end.
init = function(args)
  for name, value in string.gmatch(os.getenv("BENCH_FIELDS"), "([%w-]+)=([^;]*);") do wrk.headers[name] = value end
  local requests = {}
  for path in io.lines(os.getenv("BENCH_PATHS")) do
    wrk.path = path
    requests[#requests + 1] = wrk.format()
  end
  local pause = tonumber(os.getenv("BENCH_PAUSE"))
  if pause then
    delay = function() return pause end
  end
  local number = os.time() % 100000 * 1000000
  if os.getenv("BENCH_NEW_HEADS") then
    request = function()
      number = number + 1
      wrk.headers["X-Request-Id"] = string.format("%.0f", number)
      return wrk.format()
    end
  elseif #requests > 1 then
    math.randomseed(number)
    request = function() return requests[math.random(#requests)] end
  end
end

done = function(summary, latency, _)
  local e = summary.errors
  io.stderr:write(string.format('{"requests": %d, "seconds": %f, "p99": %f, "closed": %d, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3, e.read,
    e.connect + e.write + e.status + e.timeout))
end
