package main

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"carstate/internal/nodeprocess"
	"carstate/internal/testkit"
)

// end asks the process to end, and returns how long that took minus the time for which the machine
// stalled. If the machine stalled for most of the time, an engine that did not close in time is no
// error: the process has then ended as in a crash, which the engine must survive.
func (p *process) end() (time.Duration, error) {
	stalled := testkit.Stall(filepath.Dir(p.Dir))
	began := time.Now()
	err := p.Stop()
	took := time.Since(began)
	stood := min(stalled(), took)
	if e, ok := errors.AsType[*nodeprocess.EndedError](err); ok && e.Code == exitError && stood > took/2 &&
		strings.Contains(p.log.String(), "the engine did not close in time") {
		err = nil
	}
	return took - stood, err
}
