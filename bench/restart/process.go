package restart

import (
	"context"
	"fmt"
	"time"

	"carstate/internal/nodeprocess"
)

// process is a running `carstate serve` that is ready.
type process struct {
	*nodeprocess.Node
	ready time.Duration // from the start of the program to the first "ready"
	cpu   time.Duration // that it took until then
}

// startLimit bounds a start; that of 10 million vehicles takes under a minute.
const startLimit = 10 * time.Minute

// start runs the program on a data directory and waits until it is ready.
func start(ctx context.Context, binary, dir string) (*process, error) {
	n, err := nodeprocess.Start(ctx, nodeprocess.Options{Binary: binary, Dir: dir})
	if err != nil {
		return nil, err
	}
	p := &process{Node: n}
	if err = n.AwaitReady(ctx, startLimit); err == nil {
		p.ready = time.Since(n.Began())
		seconds, failed := p.metric(ctx, "process_cpu_seconds_total")
		p.cpu, err = time.Duration(seconds*float64(time.Second)), failed
	}
	if err != nil {
		n.Kill()
		return nil, err
	}
	return p, nil
}

// metric reads one of the program's own figures.
func (p *process) metric(ctx context.Context, name string) (float64, error) {
	m, err := p.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	v, ok := m[name]
	if !ok {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return v, nil
}
