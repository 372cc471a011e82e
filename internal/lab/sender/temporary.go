package sender

import (
	"context"
	"fmt"
	"os"
	"time"

	"example.org/carstate/internal/access"
	adminclient "example.org/carstate/internal/admin/client"
)

const (
	TemporaryLife = 24 * time.Hour      // longer than any replay that is not live
	EndlessLife   = 30 * 24 * time.Hour // for programs without an end
	// A busy store takes seconds, but an operator who has pressed Ctrl-C waits.
	tidyTime = 10 * time.Second
)

// WithSource makes a temporary source, named after what; if its removal fails, it expires after
// life.
func WithSource(ctx context.Context, client *adminclient.Client, what string, of access.Vehicles, life time.Duration,
	send func(Login) error) (err error) {
	name := fmt.Sprintf("%s-%d-%d", what, os.Getpid(), time.Now().UnixMilli())
	s, err := client.AddSource(ctx, access.Credential{Name: name, Vehicles: of, Rate: access.NoRate,
		TrustedCrowd: new(true), Expires: time.Now().Add(life)})
	if err != nil {
		return err
	}
	defer tidy(ctx, &err, "source "+name, func(ctx context.Context) error {
		_, err := client.RemoveSource(ctx, name)
		return err
	})
	return send(Login{name, s.Key, time.Now()})
}

// tidy removes even after an interrupt.
func tidy(ctx context.Context, err *error, what string, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	switch failed := remove(ctx); {
	case failed == nil:
	case *err == nil:
		*err = fmt.Errorf("the temporary %s was not removed, and stays until it expires: %w", what, failed)
	default:
		*err = fmt.Errorf("%w; the temporary %s was not removed either, and stays until it expires", *err, what)
	}
}

// WithToken is like [WithSource], for an access token.
func WithToken(ctx context.Context, operator *adminclient.Client, what string, of access.Vehicles, life time.Duration,
	ask func(token string) error) (err error) {
	t, err := operator.IssueToken(ctx, access.Credential{
		Developer: fmt.Sprintf("%s-%d", what, os.Getpid()), Operations: access.AllOperations, Vehicles: of,
		Expires: time.Now().Add(life),
	})
	if err != nil {
		return err
	}
	defer tidy(ctx, &err, "token "+t.ID, func(ctx context.Context) error {
		_, err := operator.RevokeToken(ctx, t.ID)
		return err
	})
	return ask(t.AccessToken)
}
