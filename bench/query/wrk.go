package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// wrkScript makes wrk ask for the targets of a file, one after the other, and
// print what it counted as JSON. The requests are made before the run. LuaJIT
// hashes a long string by a few bytes of its ends and of its middle, so a header
// brings the middle into the vid: a hundred thousand requests that hash alike
// would take minutes to make.
const wrkScript = `
local requests, n, i, rest = {}, 0, 0, nil
function init()
  for target in io.lines(os.getenv("TARGETS")) do
    n = n + 1
    if not rest then
      local bare = wrk.format("GET", target)
      local _, vid = string.find(bare, "vid=", 1, true)
      local pad = string.rep("x", math.max(2 * ((vid or #target - 20) + 10) - #bare - 9, 0))
      rest = string.sub(wrk.format("GET", target, { ["X-Pad"] = pad }), #"GET " + #target + 1)
    end
    requests[n] = "GET " .. target .. rest
  end
  i = math.random(n) - 1
end
function request()
  i = i % n + 1
  return requests[i]
end
function done(summary)
  local e = summary.errors
  io.write(string.format('\n{"requests":%d,"microseconds":%d,"failed":%d}\n', summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout))
end
`

// connections is how many the generators keep open.
const connections = 64

// closedLoop is one run of wrk.
type closedLoop struct {
	Requests     int64 `json:"requests"`
	Microseconds int64 `json:"microseconds"`
	Failed       int64 `json:"failed"`
}

// runWrk asks the server at addr for the targets for so long.
func runWrk(ctx context.Context, core int, dir, addr, targets string, took time.Duration) (r closedLoop, err error) {
	script := filepath.Join(dir, "wrk.lua")
	if err := os.WriteFile(script, []byte(wrkScript), 0o600); err != nil {
		return r, err
	}
	p, err := launch("wrk", core, dir, []string{"TARGETS=" + targets}, "wrk",
		"--threads", "1", "--connections", fmt.Sprint(connections), "--duration", fmt.Sprintf("%ds", int(took/time.Second)),
		"--script", script, "http://"+addr)
	if err != nil {
		return r, err
	}
	defer p.stop()
	stop := context.AfterFunc(ctx, p.stop)
	defer stop()
	said, err := io.ReadAll(p.reader)
	if err != nil || ctx.Err() != nil {
		return r, errors.Join(err, ctx.Err())
	}
	if err := json.Unmarshal(lastLine(said), &r); err != nil || r.Requests == 0 || r.Microseconds == 0 {
		return r, fmt.Errorf("wrk counted nothing: %s", p.said.last())
	}
	if r.Failed > 0 {
		return r, fmt.Errorf("%d of %d requests failed", r.Failed, r.Requests)
	}
	return r, nil
}

// lastLine is the last line that is not empty.
func lastLine(b []byte) []byte {
	for i, v := range slices.Backward(b) {
		if v == '{' && (i == 0 || b[i-1] == '\n') {
			return b[i:]
		}
	}
	return nil
}
