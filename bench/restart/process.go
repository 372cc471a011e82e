package restart

import (
	"context"
	"time"

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

// start runs the program on a data directory and waits until it is ready.
func start(ctx context.Context, binary, dir string) (*process, error) {
	n, err := nodeprocess.StartReady(ctx, nodeprocess.Options{Binary: binary, Dir: dir}, startLimit)
	if err != nil {
		return nil, err
	}
	p := &process{Node: n, ready: time.Since(n.Began())}
	if p.cpu, err = n.CPU(); err != nil {
		n.Kill()
		return nil, err
	}
	return p, nil
}
