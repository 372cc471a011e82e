package engine

import (
	"log/slog"
	"sync/atomic"
)

// Failure is the first failure of an engine after which only a restart can help. It is safe for
// concurrent use.
type Failure struct {
	err    atomic.Pointer[error]
	failed chan error
}

// NewFailure returns a Failure of an engine that works.
func NewFailure() *Failure { return &Failure{failed: make(chan error, 1)} }

// Fail records err and logs it with the given message, unless a failure was recorded before.
func (f *Failure) Fail(log *slog.Logger, message string, err error) {
	if f.err.CompareAndSwap(nil, &err) {
		log.Error(message, "error", err)
		f.failed <- err
	}
}

// Alive implements [store.Engine]: it returns the failure, or nil.
func (f *Failure) Alive() error { return errorAt(&f.err) }

// Failed implements [store.Engine]: it returns the channel that receives the failure.
func (f *Failure) Failed() <-chan error { return f.failed }

// errorAt returns the error that p holds, or nil.
func errorAt(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}
