package admin_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"carstate/internal/access"
)

// memory is a Keeper that keeps records in the tables themselves, and notes
// what was asked of it in which order.
type memory struct {
	tokens    *access.Tokens
	sources   *access.Sources
	operators access.Operators

	mu     sync.Mutex // guards what follows
	events []access.Event
	order  []string
	fail   map[string]error              // by method: what it returns instead of working
	before func(context.Context, string) // called at the start of each method
}

var errDisk = errors.New("disk full")

func (m *memory) begin(ctx context.Context, method string) error {
	m.mu.Lock()
	m.order = append(m.order, method)
	err, before := m.fail[method], m.before
	m.mu.Unlock()
	if before != nil {
		before(ctx, method)
	}
	return errors.Join(err, ctx.Err())
}

// failing makes a method fail from now on, or work again with nil.
func (m *memory) failing(method string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail[method] = err
}

// did returns what was asked since the last time.
func (m *memory) did() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	order := m.order
	m.order = nil
	return order
}

func (m *memory) CreateToken(ctx context.Context, t access.Token) error {
	if err := m.begin(ctx, "CreateToken"); err != nil {
		return err
	}
	m.tokens.Put(t)
	return nil
}

func (m *memory) UpdateToken(ctx context.Context, id string, change func(*access.Token) error) (access.Token, error) {
	if err := m.begin(ctx, "UpdateToken"); err != nil {
		return access.Token{}, err
	}
	g, ok := m.tokens.Get(id)
	if !ok {
		return access.Token{}, access.ErrNotFound
	}
	lost := g.Token // a change that lost the race and is thrown away
	if err := change(&lost); err != nil {
		return access.Token{}, err
	}
	t := g.Token
	if err := change(&t); err != nil {
		return access.Token{}, err
	}
	m.tokens.Put(t)
	return t, nil
}

func (m *memory) CreateSource(ctx context.Context, s access.Source) error {
	if err := m.begin(ctx, "CreateSource"); err != nil {
		return err
	}
	if old, ok := m.sources.Get(s.Name); ok && old.Removed.IsZero() {
		return access.ErrExists
	}
	m.sources.Put(s)
	return nil
}

func (m *memory) UpdateSource(ctx context.Context, name string, change func(*access.Source) error) (access.Source, error) {
	if err := m.begin(ctx, "UpdateSource"); err != nil {
		return access.Source{}, err
	}
	old, ok := m.sources.Get(name)
	if !ok || !old.Removed.IsZero() {
		return access.Source{}, access.ErrNotFound
	}
	s := *old
	if err := change(&s); err != nil {
		return access.Source{}, err
	}
	m.sources.Put(s)
	return s, nil
}

func (m *memory) CreateOperator(ctx context.Context, o access.Operator) error {
	if err := m.begin(ctx, "CreateOperator"); err != nil {
		return err
	}
	if old, ok := m.operators.Get(o.Name); ok && old.Removed.IsZero() {
		return access.ErrExists
	}
	m.operators.Put(o)
	return nil
}

func (m *memory) UpdateOperator(ctx context.Context, name string, change func(*access.Operator) error) (access.Operator, error) {
	if err := m.begin(ctx, "UpdateOperator"); err != nil {
		return access.Operator{}, err
	}
	o, ok := m.operators.Get(name)
	if !ok || !o.Removed.IsZero() {
		return access.Operator{}, access.ErrNotFound
	}
	if err := change(&o); err != nil {
		return access.Operator{}, err
	}
	m.operators.Put(o)
	return o, nil
}

func (m *memory) Audit(ctx context.Context, e access.Event) error {
	if err := m.begin(ctx, "Audit "+e.Outcome); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e)
	return nil
}

func (m *memory) AuditTail(ctx context.Context, limit int) ([]access.Event, error) {
	if err := m.begin(ctx, "AuditTail"); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	tail := slices.Clone(m.events[max(0, len(m.events)-limit):])
	slices.Reverse(tail)
	return tail, nil
}
