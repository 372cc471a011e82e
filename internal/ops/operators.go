package ops

import (
	"context"
	"net/http"

	"carstate/internal/access"
)

// errAdminOnly keeps an operator who is removed from having made another one.
var errAdminOnly = Refuse(http.StatusForbidden, "this needs the admin key: an operator's key does not open it")

// AddOperator adds an operator; only the admin key may. The key is to be shown
// once.
func (p *Operations) AddOperator(ctx context.Context, by, name string) (OperatorSummary, string, error) {
	if by != access.AdminName {
		return OperatorSummary{}, "", errAdminOnly
	}
	o, key, err := access.AddOperator(name, p.cfg.Now())
	if err != nil {
		return OperatorSummary{}, "", Refuse(http.StatusBadRequest, "%v", err)
	}
	err = p.audited(ctx, by, access.Event{Action: "operator.add", Object: o.Name}, func(ctx context.Context) error {
		return p.cfg.Store.CreateOperator(ctx, o)
	})
	if err != nil {
		return OperatorSummary{}, "", err
	}
	return operatorSummary(o), key, nil
}

// RotateOperator gives an operator a new key, which is to be shown once. The old
// one ends at once. Only the admin key may.
func (p *Operations) RotateOperator(ctx context.Context, by, name string) (OperatorSummary, string, error) {
	now := p.cfg.Now()
	key, hash := access.NewSecret(access.OperatorKind)
	o, err := p.updateOperator(ctx, by, "operator.rotate", name, func(o *access.Operator) { o.Rotate(hash, now) })
	if err != nil {
		return OperatorSummary{}, "", err
	}
	return operatorSummary(o), key, nil
}

// RemoveOperator removes an operator, whose key and sessions end at once. Only the
// admin key may. A second time changes nothing and returns the same.
func (p *Operations) RemoveOperator(ctx context.Context, by, name string) (OperatorSummary, error) {
	if o, ok := p.cfg.Operators.Get(name); ok && !o.Removed.IsZero() && by == access.AdminName {
		return operatorSummary(o), nil
	}
	now := wireTime(p.cfg.Now())
	o, err := p.updateOperator(ctx, by, "operator.remove", name, func(o *access.Operator) { o.Removed = now })
	return operatorSummary(o), err
}

func (p *Operations) updateOperator(ctx context.Context, by, action, name string, change func(*access.Operator)) (o access.Operator, err error) {
	if by != access.AdminName {
		return access.Operator{}, errAdminOnly
	}
	if known, ok := p.cfg.Operators.Get(name); !ok || !known.Removed.IsZero() {
		// Free text from a path must not reach the audit.
		return access.Operator{}, errNoRecord
	}
	err = p.audited(ctx, by, access.Event{Action: action, Object: name}, func(ctx context.Context) (err error) {
		o, err = p.cfg.Store.UpdateOperator(ctx, name, func(o *access.Operator) error { change(o); return nil })
		return err
	})
	return o, err
}

// RotateAdminKey writes a new admin key in place of the old one, which ends at
// once, and returns the name of the file that holds it: nobody is shown the new one. Only
// the admin key may.
func (p *Operations) RotateAdminKey(ctx context.Context, by string) (file string, err error) {
	switch {
	case by != access.AdminName:
		return "", errAdminOnly
	case p.cfg.KeyDir == "":
		return "", Refuse(http.StatusConflict, "this service keeps no admin key in a file")
	}
	p.rotating.Lock()
	defer p.rotating.Unlock()
	secret, _ := access.NewSecret(access.AdminKind)
	err = p.audited(ctx, by, access.Event{Action: "admin-key.rotate", Object: keyFile}, func(context.Context) error {
		err := replaceKey(p.cfg.KeyDir, secret)
		// Whatever went wrong: the key that the file holds is the one that counts.
		if held, rerr := readKey(p.cfg.KeyDir); rerr == nil {
			hash := access.HashOf(held)
			p.adminKey.Store(&hash)
		}
		return err
	})
	return KeyFile(p.cfg.KeyDir), err
}
