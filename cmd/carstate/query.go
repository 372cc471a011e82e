package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/client"
	"example.org/carstate/internal/access"
	adminclient "example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/netaddr"
	"example.org/carstate/internal/vehicle"
)

type queryCommand struct {
	CarDrivingState queryDriving  `cmd:"" help:"Does it drive normally, slowly, or in a traffic jam?"`
	ThrottleSystem  queryThrottle `cmd:"" help:"Is its throttle system normal?"`
}

type queryFlags struct {
	VID       string `arg:"" name:"vid" help:"The vehicle."`
	Token     string `placeholder:"TOKEN" help:"The access token; prefer CARSTATE_TOKEN, which does not appear in process lists."`
	URL       string `name:"url" env:"CARSTATE_QUERY_URL" placeholder:"URL" help:"The base URL of the service, such as https://cars.example."`
	QueryAddr string `default:"127.0.0.1:8080" placeholder:"ADDR" help:"The address of the service, if no URL is given (${default})."`
	CA        string `name:"ca" placeholder:"FILE" help:"Trust this certificate (PEM) in addition to the system's."`
	JSON      bool   `name:"json" help:"Print the record as one JSON object, with the reason why there is no answer (reason), ${more_json}"`
}

type (
	queryDriving  struct{ queryFlags }
	queryThrottle struct{ queryFlags }
)

func (c *queryDriving) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(service *client.Client) (client.Answer, fmt.Stringer, error) {
		a, err := service.CarDrivingState(ctx, c.VID)
		return a.Answer, a, err
	})
}

func (c *queryThrottle) Run(ctx context.Context, w streams) error {
	return c.ask(w, func(service *client.Client) (client.Answer, fmt.Stringer, error) {
		a, err := service.ThrottleSystem(ctx, c.VID)
		return a.Answer, a, err
	})
}

// ask says after a second that it waits, because the client retries silently.
func (f *queryFlags) ask(w streams, query func(*client.Client) (client.Answer, fmt.Stringer, error)) error {
	service, err := f.service()
	if err != nil {
		return err
	}
	waits := time.AfterFunc(time.Second, func() {
		fmt.Fprintf(w.err, "carstate: waiting for the service, up to %s: it cannot be reached, is busy, or the token "+
			"is over its rate\n", queryPatience)
	})
	a, line, err := query(service)
	waits.Stop()
	return f.print(w, a, line, err)
}

// queryPatience is short, because a person at a terminal waits.
const queryPatience = 10 * time.Second

func (f *queryFlags) service() (*client.Client, error) {
	if f.Token == "" {
		return nil, usageError("there is no access token: set CARSTATE_TOKEN, or give --token (`carstate token " +
			"issue` creates one)")
	}
	options := []client.Option{client.WithPatience(queryPatience)}
	if f.CA != "" {
		trust, err := adminclient.Trusting(f.CA)
		if err != nil {
			return nil, err
		}
		options = append(options, client.WithHTTPClient(adminclient.HTTPClient(trust)))
	}
	return client.New(cmp.Or(f.URL, netaddr.BaseURL(f.QueryAddr)), f.Token, options...), nil
}

func queried(a client.Answer) (string, error) {
	said := struct {
		Record     jsontext.Value `json:",embed"`
		Reason     client.Reason  `json:"reason,omitzero"`
		AsOf       time.Time      `json:"as_of,omitzero"`
		AgeSeconds *int64         `json:"age_seconds,omitzero"`
		RequestID  string         `json:"request_id,omitzero"`
	}{jsontext.Value(a.Record), a.Reason, a.AsOf, nil, a.RequestID}
	if !a.AsOf.IsZero() {
		said.AgeSeconds = new(int64(a.Age / time.Second))
	}
	text, err := json.Marshal(said)
	return string(text), err
}

func (f *queryFlags) print(w streams, a client.Answer, line fmt.Stringer, err error) error {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, client.ErrBaseURL):
		return usageError("%v (--url, --query-addr)", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: is `carstate serve` running there? (--url, --query-addr)", err)
	case untrusted:
		return fmt.Errorf("%w: if you trust it, give it with --ca FILE", err)
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrBadAnswer), errors.Is(err, client.ErrNotFound):
		return fmt.Errorf("%w (--url, --query-addr)", err)
	case err != nil:
		return err
	}
	text := line.String()
	if f.JSON {
		if text, err = queried(a); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(w.out, text); err != nil {
		return err
	}
	if a.Answered() {
		return nil
	}
	if hint := f.sandboxHint(); hint != "" && a.Reason == client.ReasonUnknown {
		fmt.Fprintln(w.err, "carstate: "+hint)
	}
	return errNoAnswer
}

func (f *queryFlags) sandboxHint() string {
	sandbox := strings.HasPrefix(f.Token, string(access.SandboxKind))
	reserved := access.SandboxVehicles().Include(vehicle.ID(f.VID))
	switch {
	case sandbox && !reserved:
		return "a sandbox token (cstest_…) sees only vehicles of the sandbox, such as " + access.SandboxJam
	case reserved && !sandbox:
		return "only a sandbox token (cstest_…) sees this vehicle of the sandbox"
	}
	return ""
}
