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
	// TemporaryLife outlasts any replay that is not live, and bounds the life of a source
	// whose removal was prevented.
	TemporaryLife = 24 * time.Hour
	// EndlessLife bounds the life of a source or token that is used until somebody ends the
	// program, and whose removal was prevented.
	EndlessLife = 30 * 24 * time.Hour
	// tidyTime bounds the removal of a temporary source or token. A busy store takes seconds
	// for a write, and the operator who has pressed Ctrl-C waits.
	tidyTime = 10 * time.Second
)

// WithSource calls send as a source for some vehicles, which is removed when send returns and
// expires after life at the latest. The name of the source begins with what it is for.
func WithSource(ctx context.Context, client *adminclient.Client, what string, of access.Vehicles, life time.Duration, send func(Login) error) (err error) {
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

// tidy removes a temporary source or token, also after an interrupt, which has ended ctx. If
// the removal fails after another error, the source or token expires.
func tidy(ctx context.Context, err *error, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if failed := remove(ctx); *err == nil {
		*err = failed
	}
}

// WithToken calls ask with an access token for some vehicles, which is revoked when ask
// returns and expires after life at the latest.
func WithToken(ctx context.Context, operator *adminclient.Client, what string, of access.Vehicles, life time.Duration, ask func(token string) error) (err error) {
	t, err := operator.IssueToken(ctx, access.TokenRequest{
		Developer: fmt.Sprintf("%s-%d", what, os.Getpid()), Operations: access.AllOperations, Vehicles: of, Expires: time.Now().Add(life),
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
