package overload

import (
	"context"
	"fmt"
	"os"
	"time"
)

func (v *victim) debug(ctx context.Context) {
	for ctx.Err() == nil {
		b := time.Now()
		m, err := v.n.Metrics(ctx)
		fd, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.n.PID()))
		cpu, _ := v.n.CPU()
		v.a.Logf("wait %.3f asked in %s fds %d goroutines %v cpu %s users %d err %v", m["carstate_wait_seconds"], time.Since(b), len(fd), m["go_goroutines"], cpu, v.crowd.connections(), err)
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
