package admin

import (
	"context"
	"net/http"

	"carstate/internal/access"
)

// errAdminOnly keeps an operator who is removed from having made another one.
var errAdminOnly = refuse(http.StatusForbidden, "this needs the admin key: an operator's key does not open it")

// AddOperator adds an operator; only the admin key may. The key is to be shown
// once.
func (d *Deeds) AddOperator(ctx context.Context, by, name string) (access.Operator, string, error) {
	if by != access.AdminName {
		return access.Operator{}, "", errAdminOnly
	}
	o, key, err := access.AddOperator(name, d.cfg.Now())
	if err != nil {
		return access.Operator{}, "", refuse(http.StatusBadRequest, "%v", err)
	}
	err = d.do(ctx, by, access.Event{Action: "operator.add", Object: o.Name}, func(ctx context.Context) error {
		return d.cfg.Keeper.CreateOperator(ctx, o)
	})
	if err != nil {
		return access.Operator{}, "", err
	}
	return o, key, nil
}

// RotateOperator gives an operator a new key, which is to be shown once. The old
// one ends at once. Only the admin key may.
func (d *Deeds) RotateOperator(ctx context.Context, by, name string) (o access.Operator, key string, err error) {
	now := d.cfg.Now()
	key, hash := access.NewSecret(access.OperatorKind)
	o, err = d.updateOperator(ctx, by, "operator.rotate", name, func(o *access.Operator) { o.Rotate(hash, now) })
	if err != nil {
		return access.Operator{}, "", err
	}
	return o, key, nil
}

// RemoveOperator removes an operator, whose key and sessions end at once. Only the
// admin key may. A second time changes nothing and returns the same.
func (d *Deeds) RemoveOperator(ctx context.Context, by, name string) (access.Operator, error) {
	if o, ok := d.cfg.Operators.Get(name); ok && !o.Removed.IsZero() && by == access.AdminName {
		return o, nil
	}
	now := wireTime(d.cfg.Now())
	return d.updateOperator(ctx, by, "operator.remove", name, func(o *access.Operator) { o.Removed = now })
}

func (d *Deeds) updateOperator(ctx context.Context, by, action, name string, change func(*access.Operator)) (o access.Operator, err error) {
	if by != access.AdminName {
		return access.Operator{}, errAdminOnly
	}
	if known, ok := d.cfg.Operators.Get(name); !ok || !known.Removed.IsZero() {
		// Free text from a path must not reach the audit.
		return access.Operator{}, errNoRecord
	}
	err = d.do(ctx, by, access.Event{Action: action, Object: name}, func(ctx context.Context) (err error) {
		o, err = d.cfg.Keeper.UpdateOperator(ctx, name, func(o *access.Operator) error { change(o); return nil })
		return err
	})
	return o, err
}

// RotateAdminKey writes a new admin key in place of the old one, which ends at
// once. Nobody is shown the new one: it stands in its file. Only the admin key may.
func (d *Deeds) RotateAdminKey(ctx context.Context, by string) error {
	switch {
	case by != access.AdminName:
		return errAdminOnly
	case d.cfg.KeyDir == "":
		return refuse(http.StatusConflict, "this service keeps no admin key in a file")
	}
	d.rotating.Lock()
	defer d.rotating.Unlock()
	secret, _ := access.NewSecret(access.AdminKind)
	return d.do(ctx, by, access.Event{Action: "admin-key.rotate", Object: keyFile}, func(context.Context) error {
		err := replaceKey(d.cfg.KeyDir, secret)
		// Whatever went wrong: the key that the file holds is the one that counts.
		if held, rerr := readKey(d.cfg.KeyDir); rerr == nil {
			hash := access.HashOf(held)
			d.adminKey.Store(&hash)
		}
		return err
	})
}
