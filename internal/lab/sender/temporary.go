package sender

import (
	"context"
	"fmt"
	"os"
	"time"

	"carstate/internal/access"
	adminclient "carstate/internal/admin/client"
)

const (
	// TemporaryLife is longer than any replay that is not live. It limits the life of a
	// source whose removal was prevented.
	TemporaryLife = 24 * time.Hour
	// EndlessLife limits the life of a source or token that is used until the program is
	// ended, and whose removal was prevented.
	EndlessLife = 30 * 24 * time.Hour
	// tidyTime limits the removal of a temporary source or token. A busy store takes
	// seconds for a write, while the operator who has pressed Ctrl-C waits.
	tidyTime = 10 * time.Second
)

// WithSource adds a temporary source for some vehicles and calls send with it. The source
// is removed when send returns, and expires after life at the latest. Its name begins with
// what.
func WithSource(ctx context.Context, client *adminclient.Client, what string, of access.Vehicles, life time.Duration,
	send func(Login) error) (err error) {
	name := fmt.Sprintf("%s-%d-%d", what, os.Getpid(), time.Now().UnixMilli())
	s, err := client.AddSource(ctx, access.SourceRequest{Name: name, Vehicles: of, Expires: time.Now().Add(life)})
	if err != nil {
		return err
	}
	defer tidy(ctx, &err, func(ctx context.Context) error {
		_, err := client.RemoveSource(ctx, name)
		return err
	})
	return send(Login{name, s.Key, time.Now()})
}

// tidy removes a temporary source or token, also after an interrupt, which has ended ctx.
// If the removal fails too, the error before it is kept, and the source or token expires.
func tidy(ctx context.Context, err *error, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if failed := remove(ctx); *err == nil {
		*err = failed
	}
}

// WithToken issues a temporary access token for some vehicles and calls ask with it. The
// token is revoked when ask returns, and expires after life at the latest.
func WithToken(ctx context.Context, operator *adminclient.Client, what string, of access.Vehicles, life time.Duration,
	ask func(token string) error) (err error) {
	t, err := operator.IssueToken(ctx, access.TokenRequest{
		Developer: fmt.Sprintf("%s-%d", what, os.Getpid()), Operations: access.AllOperations, Vehicles: of,
		Expires: time.Now().Add(life),
	})
	if err != nil {
		return err
	}
	defer tidy(ctx, &err, func(ctx context.Context) error {
		_, err := operator.RevokeToken(ctx, t.ID)
		return err
	})
	return ask(t.AccessToken)
}
