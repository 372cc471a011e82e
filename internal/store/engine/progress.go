package engine

import (
	"context"
	"fmt"
	"sync"
)

type Progress struct {
	mu      sync.Mutex // guards the fields below
	applied uint64     // sequence of the newest applied record
	changed chan struct{}
}

func (p *Progress) Advance(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied = max(p.applied, seq)
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

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
