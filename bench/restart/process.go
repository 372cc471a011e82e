package restart

import (
	"context"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
)

// process is a running `carstate serve` that is ready.
type process struct {
	*nodeprocess.Node
	ready time.Duration // from the start of the program until it was ready
	cpu   time.Duration // CPU time used until then
}

// startLimit is the time limit of a start. A start with 10 million vehicles takes less than a
// minute.
const startLimit = 10 * time.Minute

// run runs the program on a data directory, waits until it is ready, and calls f. Then it kills the
// program, if f has not stopped it.
func run(ctx context.Context, binary, dir string, f func(*process)) {
	n := must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: binary, Dir: dir}, startLimit))
	defer n.Kill()
	f(&process{Node: n, ready: time.Since(n.Began()), cpu: must.Get(n.CPU())})
}
