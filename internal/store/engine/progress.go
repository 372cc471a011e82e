package engine

import (
	"context"
	"fmt"
	"sync"
)

// Progress lets goroutines wait until a feed has applied a record: the feed calls Advance, and the
// others call Wait. The zero value is ready to use. It is safe for concurrent use.
type Progress struct {
	mu      sync.Mutex // guards the fields below
	applied uint64     // sequence of the newest applied record
	changed chan struct{}
}

// Advance records that the records up to sequence seq are applied, and wakes the callers of Wait.
func (p *Progress) Advance(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied = max(p.applied, seq)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Wait returns nil once the record with sequence seq is applied, or an error if ctx ends first.
func (p *Progress) Wait(ctx context.Context, seq uint64) error {
	for {
		p.mu.Lock()
		done := p.applied >= seq
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stored, but not yet in this node's tables: %w", ctx.Err())
		case <-changed:
		}
	}
}
