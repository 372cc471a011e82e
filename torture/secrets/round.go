package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin/client"
	"carstate/internal/nodeprocess"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// round is a node and all the canaries that it receives.
type round struct {
	a     *row.Attempt
	rng   *rand.Rand
	dir   string
	node  *nodeprocess.Node
	admin *client.Client

	collector *httptest.Server // receives traces

	secrets *canaries // keys and tokens
	names   *canaries // vids, and hashes that anybody could calculate
	cards   []card    // all secrets, to be sent to places where they do not belong
	vid     string

	mu       sync.Mutex // guards the fields below
	searched int64      // bytes
	texts    int        // number of texts searched
	places   map[string]bool
	traces   [][]byte
	traced   map[string]bool // the Authorization headers that the collector received
	done     []string        // what succeeded: commands, and the paths of console forms
}

// card is a secret and its description.
type card struct{ what, text string }

// given is the number of secrets that are sent to places where no secret belongs.
const given = 20

const collectorKey = "collectorCanary7f3Kq9ZpW2xLm8"

// newSecret registers a secret that was issued or invented, and returns it.
func (r *round) newSecret(what, text string) string {
	skip := strings.Index(text, "_") + 1 // the prefix is the kind of a secret
	r.secrets.add(what, text, skip)
	r.names.addHash("the hash of "+what, text)
	r.cards = append(r.cards, card{what, text})
	return text
}

// answered counts a sent request as acknowledged if there was any answer.
func (r *round) answered(text []byte) {
	if len(text) > 0 {
		r.a.Acknowledged(1)
	}
}

// look searches a text that the service wrote. The parameter place says where the service wrote it.
func (r *round) look(place string, text []byte, sets ...*canaries) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.searched += int64(len(text))
	r.places[strings.SplitN(place, "`", 2)[0]] = true
	r.texts++
	for _, set := range sets {
		for _, f := range set.find(text) {
			r.a.Wrong("%s (%s) is in %s", f.what, f.as, place)
		}
	}
}

// start starts a node with as much logging and tracing as possible.
func (r *round) start(ctx context.Context) error {
	r.collector = httptest.NewServer(http.HandlerFunc(r.collect))
	out := filepath.Join(r.dir, "stdout")
	flags := []string{"--log-level", "debug", "--access-log", filepath.Join(r.dir, "access.log"), "--otlp-endpoint",
		r.collector.URL, "--trace-sample", "1"}
	var err error
	r.node, err = nodeprocess.Start(ctx, nodeprocess.Options{
		Binary: r.a.Binary, Dir: filepath.Join(r.dir, "data"), Flags: flags,
		Env:  append(os.Environ(), "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20"+collectorKey+",broken"),
		Wrap: []string{"sh", "-c", `exec "$0" "$@" >` + out},
	})
	if err != nil {
		return err
	}
	if err := r.node.AwaitReady(ctx, time.Minute); err != nil {
		return err
	}
	r.admin, err = r.node.AdminClient()
	return err
}

// collect is the HTTP handler of a server that collects the node's traces.
func (r *round) collect(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traces = append(r.traces, body)
	r.traced[req.Header.Get("Authorization")] = true
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// issue creates a secret of every kind.
func (r *round) issue(ctx context.Context) error {
	r.vid = "VEHICLECANARY" + fmt.Sprint(100000+r.rng.IntN(900000)) + "ZxQ"
	r.names.add("a vid", r.vid, 0)
	r.names.addHash("a vid", r.vid)
	r.newSecret("the key of the collector", collectorKey)
	r.cards = nil // it is not sent anywhere: it does not have the form of a secret
	r.newSecret("the admin key", r.admin.Key)
	all, one := access.AllVehicles(), access.VehicleSet(vehicle.ID(r.vid))
	var failed error
	keep := func(what, secret string, err error) {
		if failed = errors.Join(failed, err); err == nil {
			r.newSecret(what, secret)
		}
	}
	done := func(_ any, err error) { failed = errors.Join(failed, err) }
	source := func(what, name string, vehicles access.Vehicles) {
		s, err := r.admin.AddSource(ctx, access.SourceRequest{Name: name, Vehicles: vehicles})
		keep(what, s.Key, err)
	}
	source("a source's key", "gateway", all)
	source("a car's key", "onecar", one)
	source("a removed source's key", "gone", all)
	// The console rotates the key of the first source in the list. The commands still need
	// the key of the gateway.
	source("a source's key that the console replaces", "aged", all)
	rotated, err := r.admin.RotateSource(ctx, "onecar", time.Hour)
	keep("a rotated source's key", rotated.Key, err)
	done(r.admin.RemoveSource(ctx, "gone"))

	grace, err := r.admin.AddOperator(ctx, "grace")
	keep("an operator's key", grace.Key, err)
	linus, err := r.admin.AddOperator(ctx, "linus")
	keep("a removed operator's key", linus.Key, err)
	done(r.admin.RemoveOperator(ctx, "linus"))
	again, err := r.admin.RotateOperator(ctx, "grace")
	keep("a rotated operator's key", again.Key, err)

	token := func(what string, q access.TokenRequest) (id string) {
		q.Developer = "Ada"
		if q.Operations == 0 {
			q.Operations = access.AllOperations
		}
		t, err := r.admin.IssueToken(ctx, q)
		keep(what, t.AccessToken, err)
		return t.ID
	}
	token("a token", access.TokenRequest{Vehicles: all})
	token("a token of one vehicle", access.TokenRequest{Vehicles: one})
	token("a token of one operation", access.TokenRequest{Vehicles: all, Operations: access.ThrottleSystem})
	token("a limited token", access.TokenRequest{Vehicles: all, Rate: access.Rate{Calls: 3, Window: time.Hour}})
	token("a sandbox token", access.TokenRequest{Sandbox: true})
	token("an expired token", access.TokenRequest{Vehicles: all, Expires: time.Now().Add(50 * time.Millisecond)})
	done(r.admin.RevokeToken(ctx, token("a revoked token", access.TokenRequest{Vehicles: all})))
	fresh, err := r.admin.RotateToken(ctx, token("a replaced token", access.TokenRequest{Vehicles: all}), 0)
	keep("a rotated token", fresh.AccessToken, err)
	if failed != nil {
		return failed
	}
	never, _ := access.NewSecret(access.TokenKind)
	r.newSecret("a token that was never issued", never)
	whole := r.text("a token")
	r.newSecret("a token that is cut off", whole[:len(whole)-3])
	if len(r.cards) != given {
		return fmt.Errorf("%d secrets were issued, but the document says %d", len(r.cards), given)
	}
	return nil
}

// text returns the secret that has the description what.
func (r *round) text(what string) string {
	return r.cards[slices.IndexFunc(r.cards, func(c card) bool { return c.what == what })].text
}

// settle searches everything that the node has output and stored, and stops the node.
func (r *round) settle(ctx context.Context) error {
	both := []*canaries{r.secrets, r.names}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		_, text, err := r.node.Get(ctx, nodeprocess.Admin, path)
		if err != nil {
			return err
		}
		r.look(path, text, both...)
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.node.PID()))
	if err != nil {
		return err
	}
	r.look("the server's command line", cmdline, both...)
	events, err := r.admin.Audit(ctx, 1000)
	if err != nil {
		return err
	}
	r.look("the audit", fmt.Appendf(nil, "%+v", events), both...)
	if err := r.node.Stop(); err != nil {
		return err
	}
	if log := r.node.Log(); len(log) > 900<<10 {
		return errors.New("the log is too long to have been kept as a whole")
	} else if !strings.Contains(log, `"DEBUG"`) && !strings.Contains(log, "ending") {
		return errors.New("the node logged nothing")
	} else {
		r.look("the log", []byte(log), both...)
	}
	for _, name := range []string{"stdout", "access.log"} {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		if name == "access.log" && bytes.Count(text, []byte{'\n'}) < 100 {
			return errors.New("the access log has too few lines")
		}
		r.look(map[string]string{"stdout": "standard output"}[name]+strings.TrimSuffix(name, "stdout"), text, both...)
	}
	r.mu.Lock()
	traces, key := slices.Concat(r.traces...), r.traced["Bearer "+collectorKey]
	r.mu.Unlock()
	if !key || len(traces) == 0 {
		return errors.New("the collector received no traces, or not with its key")
	}
	r.look("the traces", traces, both...)
	return r.kept()
}

// kept searches all files of the data directory. They may contain vids but no secrets, except for
// the file of the admin key.
func (r *round) kept() error {
	data := filepath.Join(r.dir, "data")
	n, err := r.secrets.searchTree(data, []string{"admin.key"}, func(file string, f form) {
		r.a.Wrong("%s (%s) is in the data directory, in %s", f.what, f.as, file)
	})
	if err != nil {
		return err
	}
	if n < 10<<10 {
		return errors.New("the data directory is nearly empty")
	}
	r.texts++
	r.searched += n
	key, err := os.ReadFile(filepath.Join(data, "admin.key"))
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(key)) != r.admin.Key {
		r.a.Wrong("admin.key does not hold the admin key")
	}
	return nil
}

// command runs a command of carstate and searches its output for secrets.
func (r *round) command(ctx context.Context, dir, as string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, r.a.Binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CARSTATE_DATA_DIR="+filepath.Join(r.dir, "data"),
		"CARSTATE_ADMIN_ADDR="+r.node.Address(nodeprocess.Admin), "CARSTATE_INGEST_ADDR="+r.node.Address(nodeprocess.Ingest),
		"CARSTATE_MQTT_ADDR="+r.node.Address(nodeprocess.MQTT), "CARSTATE_QUERY_ADDR="+r.node.Address(nodeprocess.Query))
	cmd.Env = append(cmd.Env, env...)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	r.a.Offered(1)
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	r.answered(text)
	r.look("what `"+as+"` says", text, r.secrets)
	if err == nil {
		r.succeeded(as)
	}
	return nil
}

// succeeded records that a command or a form succeeded.
func (r *round) succeeded(what string) {
	// Environment variables are not part of a command's name.
	words := slices.DeleteFunc(strings.Fields(what), func(word string) bool { return strings.Contains(word, "={") })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, strings.Join(words, " ")+" ")
}

// mustSucceed lists commands and forms that must succeed at least once. A command that always fails
// may never reach the code that could output a secret.
var mustSucceed = []string{
	"token list", "source list", "operator list", "explain", "token issue", "query car-driving-state",
	"query throttle-system", "replay", "simulate", "backup",
	"POST /tokens", "POST /sources", "POST /operators",
}

// missing returns the elements of mustSucceed that never succeeded.
func (r *round) missing() (never []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range mustSucceed {
		if !slices.ContainsFunc(r.done, func(done string) bool { return strings.HasPrefix(done, what+" ") }) {
			never = append(never, what)
		}
	}
	return never
}
