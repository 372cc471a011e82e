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
	// TemporaryLife is the time after which a temporary source expires if it cannot be removed
	// earlier. It is longer than any replay that is not live.
	TemporaryLife = 24 * time.Hour
	// EndlessLife is the time after which a temporary source or token expires if it cannot be
	// removed earlier. It is for sources and tokens that are used until the user ends the program.
	EndlessLife = 30 * 24 * time.Hour
	// tidyTime is the maximum time for the removal of a temporary source or token. A write to a
	// busy store takes seconds, but an operator who has pressed Ctrl-C waits for the removal.
	tidyTime = 10 * time.Second
)

// WithSource adds a temporary source for some vehicles and calls send with the source's name and
// key. It removes the source when send returns. If the removal fails, the source still expires
// after life. The source's name begins with what. If the source cannot be added, WithSource returns
// the error and does not call send. Otherwise, the error is that of send or, if send succeeds, that
// of the removal.
func WithSource(ctx context.Context, client *adminclient.Client, what string, of access.Vehicles, life time.Duration,
	send func(Login) error) (err error) {
	name := fmt.Sprintf("%s-%d-%d", what, os.Getpid(), time.Now().UnixMilli())
	s, err := client.AddSource(ctx, access.Request{Name: name, Vehicles: of, Rate: access.NoRate,
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

// tidy calls remove, which removes a temporary source or token, even if an interrupt has ended ctx.
// If remove fails, tidy adds to *err that what, the credential, is left; it still expires later.
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

// WithToken issues a temporary access token for some vehicles and calls ask with the token.
// Otherwise, it is like [WithSource]: the token is revoked when ask returns, and the name of its
// developer begins with what.
func WithToken(ctx context.Context, operator *adminclient.Client, what string, of access.Vehicles, life time.Duration,
	ask func(token string) error) (err error) {
	t, err := operator.IssueToken(ctx, access.Request{
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
