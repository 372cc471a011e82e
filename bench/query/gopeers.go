package query

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"carstate/internal/access"
	"carstate/internal/fleet"
	carstate "carstate/internal/query"
	"carstate/internal/vehicle"
)

// The path of the measured query, and the answer of every peer to it.
const (
	path       = "/api/ic/if_dt_tflow_car_driving_state"
	bodyBefore = `{"code":200,"msg":"success","data":{"vid":"`
	bodyAfter  = `","status":1,"vehicle_runing_state":"1"}}`
)

// Self runs a part of the bench that needs a process of its own, which is a peer written in Go or
// the generator. args are the name and the flags of that program.
func Self(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("the name of one of the bench's own programs is missing")
	}
	switch args[0] {
	case "generate":
		return generateMain(args[1:], stdout)
	case "table":
		return tableMain(args[1:], stdout)
	}
	serve, ok := goPeers[args[0]]
	if !ok {
		return fmt.Errorf("the bench has no program %q", args[0])
	}
	k, err := readKnown(args[1:])
	if err != nil {
		return err
	}
	return listen(stdout, func(l net.Listener) error { return serve(l, k) })
}

// goPeers holds the peers written in Go.
var goPeers = map[string]func(net.Listener, *known) error{
	"net/http": serveNetHTTP,
	"fasthttp": serveFastHTTP,
}

// listen calls serve for a listener on a free port, until the process receives SIGTERM or an
// interrupt. It prints the listener's address.
func listen(stdout io.Writer, serve func(net.Listener) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, os.Interrupt)
	failed := make(chan error, 1)
	go func() { failed <- serve(l) }()
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	case <-end:
		return l.Close()
	}
}

// known holds the data that the peers look up: the valid tokens, and the state of each vehicle.
type known struct {
	tokens   map[string]bool
	vehicles map[string]byte
}

// readKnown reads the files from which all peers are filled.
func readKnown(args []string) (*known, error) {
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	tokens := flags.String("tokens", "", "")
	vehicles := flags.String("vehicles", "", "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	k := &known{map[string]bool{}, map[string]byte{}}
	for file, put := range map[string]func(string){
		*tokens:   func(s string) { k.tokens[s] = true },
		*vehicles: func(s string) { k.vehicles[s] = '1' },
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			put(strings.TrimSpace(line))
		}
	}
	return k, nil
}

func serveNetHTTP(l net.Listener, k *known) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if !k.tokens[q.Get("access_token")] {
			http.Error(w, "no such token", http.StatusUnauthorized)
			return
		}
		vid := q.Get("vid")
		state, ok := k.vehicles[vid]
		if !ok {
			http.Error(w, "no such vehicle", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(appendBody(nil, []byte(vid), state))
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return s.Serve(l)
}

func serveFastHTTP(l net.Listener, k *known) error {
	s := &fasthttp.Server{
		NoDefaultServerHeader: true,
		Handler: func(ctx *fasthttp.RequestCtx) {
			q := ctx.QueryArgs()
			vid := q.Peek("vid")
			state, ok := k.vehicles[string(vid)]
			if string(ctx.Path()) != path || !k.tokens[string(q.Peek("access_token"))] || !ok {
				ctx.SetStatusCode(fasthttp.StatusUnauthorized)
				return
			}
			ctx.SetContentType("application/json")
			ctx.Response.SetBodyRaw(appendBody(nil, vid, state))
		},
	}
	return s.Serve(l)
}

func appendBody(b, vid []byte, state byte) []byte {
	b = append(append(b, bodyBefore...), vid...)
	b = append(b, bodyAfter...)
	b[len(b)-len(`1"}}`)] = state
	return b
}

// tableMain runs only carstate's query server, over a table that is filled without telemetry,
// because ten million vehicles would take hours to report. It writes the request targets for the
// generator to a file.
func tableMain(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	vehicles := flags.Int("vehicles", 1000, "")
	tokens := flags.Int("tokens", 1, "")
	targets := flags.String("targets", "", "file to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c := carstate.Config{Tokens: new(access.Tokens), Fleet: fleet.New(), MaxAge: 24 * time.Hour}
	now := time.Now()
	for i := range *vehicles {
		c.Fleet.Put(vidOf(i), fleet.Answer{
			Driving:  vehicle.DrivingVerdict{State: vehicle.NormalDriving, Time: vehicle.At(now)},
			Throttle: vehicle.ThrottleVerdict{System: vehicle.ThrottleNormal, Time: vehicle.At(now)},
		})
	}
	secrets := make([]string, *tokens)
	for i := range secrets {
		t, secret, err := access.Issue(access.TokenRequest{
			Developer: "bench", Operations: access.AllOperations, Vehicles: access.AllVehicles(),
			Expires: now.Add(24 * time.Hour), Rate: access.Rate{Calls: 1_000_000, Window: time.Second},
		}, now)
		if err != nil {
			return err
		}
		c.Tokens.Put(t)
		secrets[i] = secret
	}
	if err := writeTargets(*targets, secrets, *vehicles); err != nil {
		return err
	}
	return listen(stdout, carstate.New(c).Serve)
}

// spread is the number of different requests that a generator sends in turn. Their vehicles are
// spread over all vehicles, so that the needed data does not fit into the processor's caches.
const spread = 100_000

func writeTargets(file string, tokens []string, vehicles int) error {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	for i := range spread {
		// The factor is coprime to the number of vehicles, so each vehicle is chosen once before
		// any is chosen again.
		n := int(uint64(i) * 7_368_787 % uint64(vehicles))
		fmt.Fprintf(w, "%s?access_token=%s&vid=%s\n", path, tokens[i%len(tokens)], vidOf(n))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o600)
}

// vidOf returns the id of vehicle i: 21 letters and digits, like real ids.
func vidOf(i int) vehicle.ID {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n := uint64(i)*0x9e3779b97f4a7c15 + 1 // multiplication by an odd number is injective
	var b [21]byte
	m := n
	for j := range b {
		b[j] = digits[m%62]
		if m /= 62; m == 0 {
			m = ^n
		}
	}
	return vehicle.ID(b[:])
}
