package main

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"example.org/carstate/internal/nodeprocess"
	"example.org/carstate/internal/testkit"
)

// end ends the process with a signal. It returns how long that took, without the time for which the
// machine stalled. If the machine stalled for most of the time, it is no error that the engine did
// not close in time. The process has then ended as in a crash, which the engine must survive.
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
