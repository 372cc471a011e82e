package engine

import (
	"log/slog"
	"sync/atomic"
)

type Failure struct {
	err    atomic.Pointer[error]
	failed chan error
}

func NewFailure() *Failure { return &Failure{failed: make(chan error, 1)} }

func (f *Failure) Fail(log *slog.Logger, message string, err error) {
	if f.err.CompareAndSwap(nil, &err) {
		log.Error(message, "error", err)
		f.failed <- err
	}
}

func (f *Failure) Alive() error { return errorAt(&f.err) }

func (f *Failure) Failed() <-chan error { return f.failed }

func errorAt(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}
