package main

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/testkit"
)

// end asks the process to end, and reports how long that took but for what the
// machine stood still. Where that was most of the time, an engine that was not closed
// is no error: the process has ended as in a crash, for which the engine is made.
func (p *process) end() (time.Duration, error) {
	stalled := testkit.Stall(filepath.Dir(p.Dir))
	began := time.Now()
	err := p.Stop()
	took := time.Since(began)
	stood := min(stalled(), took)
	if e, ok := errors.AsType[*nodeprocess.EndedError](err); ok && e.Code == exitError && stood > took/2 && strings.Contains(p.log.String(), "the engine did not close in time") {
		err = nil
	}
	return took - stood, err
}
