// Package secrets is the row that sends keys and tokens to every place where a user might enter
// one, and looks for them where they must not be.
package secrets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"
	"example.org/carstate/torture/row"
)

//go:embed *.txt drive.csv
var files embed.FS

// TOKEN and {token} are replaced by a secret, VID and {vid} by the vehicle, and GOOD by the key of
// a source that may send.
var (
	queries  = row.Lines(files, "queries.txt") // /D and /T are the two operations
	calls    = row.Lines(files, "calls.txt")   // of the admin API: method, path, body
	bodies   = append(row.Lines(files, "bodies.txt"), "")
	heads    = row.Lines(files, "heads.txt") // of requests to ingest
	logins   = row.Lines(files, "logins.txt")
	pages    = row.Lines(files, "pages.txt")    // of the console: method, path, form
	connects = row.Lines(files, "connects.txt") // client, user, password, will, topic, payload, filter
	commands = row.Lines(files, "commands.txt")
)

var Row = row.Row{
	Name: "secrets", Counts: "rounds", CI: 1,
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) {
	all := new(row.Tally)
	for n := range a.Count {
		r := &round{a: a, rng: a.Rand(n), dir: filepath.Join(a.Dir, fmt.Sprint(n)), secrets: make(canaries),
			names: make(canaries), searched: all}
		r.run(ctx)
		must.Do(ctx.Err())
	}
	a.Figure("searched", float64(all.Of("bytes"))/1e6, "MB")
	a.Figure("answers, files and other texts that were searched", float64(all.Of("texts")), "")
	a.Figure("sorts of places", float64(all.Of("places")+1), "")
}

func (r *round) run(ctx context.Context) {
	must.Do(os.MkdirAll(r.dir, 0o700))
	defer os.RemoveAll(r.dir)
	r.start(ctx)
	defer r.node.Kill()
	for _, part := range []func(context.Context){r.issue, r.feed, r.publish, r.ask, r.operate, r.browse,
		r.typeCommands, r.forget, r.settle} {
		part(ctx)
		must.Do(ctx.Err())
	}
	for _, what := range mustSucceed {
		if r.did.Of(what) == 0 {
			r.a.Wrong("%s never succeeded, so the row says nothing about it", what)
		}
	}
}

type round struct {
	a     *row.Attempt
	rng   *rand.Rand
	dir   string
	node  *nodeprocess.Node
	admin *client.Client

	secrets canaries
	names   canaries // vids, and hashes that anybody could calculate
	cards   []card
	vid     string

	searched *row.Tally
	did      row.Tally // by mustSucceed
}

type card struct{ what, text string }

const given = 20

func (r *round) newSecret(what, text string) string {
	skip := strings.Index(text, "_") + 1 // the prefix is the kind of a secret
	r.secrets.add(what, text, skip)
	r.names.addHash("the hash of "+what, text)
	r.cards = append(r.cards, card{what, text})
	return text
}

func (r *round) look(place string, text []byte, sets ...canaries) {
	r.searched.Add("bytes", len(text))
	r.searched.Add("texts", 1)
	if sort, _, _ := strings.Cut(place, "`"); r.searched.Add("place "+sort, 1) == 1 {
		r.searched.Add("places", 1)
	}
	for _, set := range sets {
		for _, f := range set.find(text) {
			r.a.Wrong("%s (%s) is in %s", f.what, f.as, place)
		}
	}
}

func (r *round) start(ctx context.Context) {
	out := filepath.Join(r.dir, "stdout")
	flags := []string{"--log-level", "debug", "--access-log", filepath.Join(r.dir, "access.log")}
	r.node = must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{
		Binary: r.a.Binary, Dir: filepath.Join(r.dir, "data"), Flags: flags,
		Wrap: []string{"sh", "-c", `exec "$0" "$@" >` + out},
	}, time.Minute))
	r.admin = must.Get(r.node.AdminClient())
}

func (r *round) issue(ctx context.Context) {
	r.vid = "VEHICLECANARY" + fmt.Sprint(100000+r.rng.IntN(900000)) + "ZxQ"
	r.names.add("a vid", r.vid, 0)
	r.names.addHash("a vid", r.vid)
	r.newSecret("the admin key", r.admin.Key)
	all, one := access.AllVehicles(), access.VehicleSet(vehicle.ID(r.vid))
	source := func(what, name string, vehicles access.Vehicles) {
		r.newSecret(what, must.Get(r.admin.AddSource(ctx, access.Credential{Name: name, Vehicles: vehicles})).Key)
	}
	source("a source's key", "gateway", all)
	source("a car's key", "onecar", one)
	source("a removed source's key", "gone", all)
	// The console rotates the first, and commands need the gateway's.
	source("a source's key that the console replaces", "aged", all)
	r.newSecret("a rotated source's key", must.Get(r.admin.RotateSource(ctx, "onecar", time.Hour)).Key)
	must.Get(r.admin.RemoveSource(ctx, "gone"))

	r.newSecret("an operator's key", must.Get(r.admin.AddOperator(ctx, "grace", false)).Key)
	r.newSecret("a removed operator's key", must.Get(r.admin.AddOperator(ctx, "linus", false)).Key)
	must.Get(r.admin.RemoveOperator(ctx, "linus"))
	r.newSecret("a rotated operator's key", must.Get(r.admin.RotateOperator(ctx, "grace")).Key)

	token := func(what string, q access.Credential) (id string) {
		q.Developer = "Ada"
		if q.Operations == 0 {
			q.Operations = access.AllOperations
		}
		t := must.Get(r.admin.IssueToken(ctx, q))
		r.newSecret(what, t.AccessToken)
		return t.ID
	}
	token("a token", access.Credential{Vehicles: all})
	token("a token of one vehicle", access.Credential{Vehicles: one})
	token("a token of one operation", access.Credential{Vehicles: all, Operations: access.ThrottleSystem})
	token("a limited token", access.Credential{Vehicles: all, Rate: access.Rate{Calls: 3, Window: time.Hour}})
	token("a sandbox token", access.Credential{Kind: access.SandboxKind})
	token("an expired token", access.Credential{Vehicles: all, Expires: time.Now().Add(50 * time.Millisecond)})
	must.Get(r.admin.RevokeToken(ctx, token("a revoked token", access.Credential{Vehicles: all})))
	replaced := token("a replaced token", access.Credential{Vehicles: all})
	r.newSecret("a rotated token", must.Get(r.admin.RotateToken(ctx, replaced, 0)).AccessToken)
	never, _ := access.NewSecret(access.TokenKind)
	r.newSecret("a token that was never issued", never)
	whole := r.text("a token")
	r.newSecret("a token that is cut off", whole[:len(whole)-3])
	if len(r.cards) != given {
		must.Fail("%d secrets were issued, but the document says %d", len(r.cards), given)
	}
}

func (r *round) text(what string) string {
	return r.cards[slices.IndexFunc(r.cards, func(c card) bool { return c.what == what })].text
}

func (r *round) settle(ctx context.Context) {
	both := []canaries{r.secrets, r.names}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		_, text := must.Get2(r.node.Get(ctx, nodeprocess.Admin, path))
		r.look(path, text, both...)
	}
	cmdline := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.node.PID())))
	r.look("the server's command line", cmdline, both...)
	events := must.Get(r.admin.SearchAudit(ctx, url.Values{"limit": {"1000"}}))
	r.look("the audit", fmt.Appendf(nil, "%+v", events), both...)
	must.Do(r.node.Stop())
	log := r.node.Log()
	if len(log) > 900<<10 {
		must.Fail("the log is too long to have been kept as a whole")
	} else if !strings.Contains(log, `"DEBUG"`) && !strings.Contains(log, "ending") {
		must.Fail("the node logged nothing")
	}
	r.look("the log", []byte(log), both...)
	for _, name := range []string{"stdout", "access.log"} {
		text := must.Get(os.ReadFile(filepath.Join(r.dir, name)))
		if name == "access.log" && bytes.Count(text, []byte{'\n'}) < 100 {
			must.Fail("the access log has too few lines")
		}
		r.look(name, text, both...)
	}
	data, key := filepath.Join(r.dir, "data"), filepath.Join(r.dir, "data", "admin.key")
	n := must.Get(r.secrets.searchTree(data, key, func(file string, f form) {
		r.a.Wrong("%s (%s) is in the data directory, in %s", f.what, f.as, file)
	}))
	if n < 10<<10 {
		must.Fail("the data directory is nearly empty")
	}
	r.searched.Add("texts", 1)
	r.searched.Add("bytes", int(n))
	if text := must.Get(os.ReadFile(key)); string(bytes.TrimSpace(text)) != r.admin.Key {
		r.a.Wrong("admin.key does not hold the admin key")
	}
}

// A command that always fails may not reach the code to test.
var mustSucceed = []string{
	"token list", "source list", "operator list", "explain", "token issue", "query car-driving-state",
	"query throttle-system", "replay", "simulate", "backup",
	"POST /tokens", "POST /sources", "POST /operators",
}

func (r *round) succeeded(what string) {
	words := slices.DeleteFunc(strings.Fields(what), func(word string) bool { return strings.Contains(word, "={") })
	for _, wanted := range mustSucceed {
		if strings.HasPrefix(strings.Join(words, " ")+" ", wanted+" ") {
			r.did.Add(wanted, 1)
		}
	}
}

// A text that contains this many consecutive characters of a canary contains the canary.
const window = 12

type canaries map[[window]byte]form

// form is for example "the admin key", "in base64".
type form struct{ what, as string }

// skip is the length of the prefix, which is not secret.
func (c canaries) add(what, text string, skip int) {
	c.put(what, "as it is", text)
	rest := text[skip:]
	for _, format := range []string{"% x", "% X"} {
		spaced := fmt.Sprintf(format, rest)
		c.put(what, "in hexadecimal", strings.ReplaceAll(spaced, " ", ""))
		c.put(what, "percent-encoded", "%"+strings.ReplaceAll(spaced, " ", "%"))
	}
	c.base64(what, "in base64", rest)
}

func (c canaries) addHash(what, text string) {
	sum := sha256.Sum256([]byte(text))
	c.put(what, "as its SHA-256", string(sum[:]))
	c.put(what, "as its SHA-256", hex.EncodeToString(sum[:]))
	c.base64(what, "as its SHA-256", string(sum[:]))
}

// The forms differ by the offset in the data, modulo three.
func (c canaries) base64(what, as, text string) {
	for shift := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := enc.EncodeToString(append(make([]byte, shift), text...))
			// The first and last characters also depend on the adjacent bytes.
			c.put(what, as, whole[4:len(whole)-4])
		}
	}
}

func (c canaries) put(what, as, text string) {
	for i := 0; i+window <= len(text); i++ {
		var w [window]byte
		copy(w[:], text[i:])
		if _, ok := c[w]; !ok {
			c[w] = form{what, as}
		}
	}
}

func (c canaries) find(text []byte) (found []form) {
	seen := make(map[form]bool)
	for i := 0; i+window <= len(text); i++ {
		if f, ok := c[[window]byte(text[i:i+window])]; ok && !seen[f] {
			seen[f] = true
			found = append(found, f)
		}
	}
	return found
}

func (c canaries) searchTree(dir, leftOut string, tell func(file string, f form)) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || name == leftOut {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		for _, f := range c.find([]byte(rel)) {
			tell("the name of a file", f)
		}
		text, err := os.ReadFile(name)
		for _, f := range c.find(text) {
			tell(filepath.Base(name), f)
		}
		bytes += int64(len(text))
		return err
	})
	return bytes, err
}
