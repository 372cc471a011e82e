package main_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/internal/vehicle"

	"pgregory.net/rapid"

	"example.org/carstate/internal/test/testkit"
)

// With -binary, TestMatrix is the row "matrix" of the torture, which also sets -rapid.checks.
var matrixCounts = flag.String("matrix.counts", "", "the file in which TestMatrix writes what it did, as JSON")

// The model is written from the text of the contract and shares no code with the service. During a
// change, both answers are right. All bytes are compared, so that a vehicle that is not granted cannot
// differ from one that does not exist.
func TestMatrix(t *testing.T) {
	if *given == "" {
		checks := flag.Lookup("rapid.checks").Value
		before := checks.String()
		t.Cleanup(func() { _ = checks.Set(before) })
		testkit.NoError(t, checks.Set("3"))
	}
	m := newMatrix(t)
	t.Cleanup(func() {
		text, err := json.Marshal(m.did)
		if t.Logf("%s", text); err == nil && *matrixCounts != "" {
			err = os.WriteFile(*matrixCounts, text, 0o600)
		}
		if err != nil {
			t.Errorf("the counts: got %v, want them in %q", err, *matrixCounts)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		m.model = model{cars: slices.Clone(m.lasting)}
		for range 3 {
			m.issue(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"issue": m.issue, "grant": m.grant, "grant again": m.grant, "revoke": m.revoke, "rotate": m.rotate,
			"report": m.report, "forget": m.forget, "": m.ask,
		})
	})
}

type matrix struct {
	model
	*process
	key     string // of the source
	all     string // for all vehicles
	admin   *client.Client
	lasting []car // that no check forgets
	made    int
	wires   [2]rawConn
	nobody  []string // without an issued token
	used    map[string]int
	did     struct{ Asked, Served, Granted, Revoked, Rotated, Forgotten, During int64 }
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{used: make(map[string]int)}
	m.process = startOf(t, plain, filepath.Join(t.TempDir(), "data"), "--max-age", matrixMaxAge.String())
	var err1, err2 error
	m.admin, err1 = m.AdminClient()
	m.key = m.addSource(t, "gateway")
	issued, err2 := m.IssueToken(t.Context(), "Ada")
	testkit.NoError(t, errors.Join(err1, err2))
	m.all = issued.AccessToken
	for i := range m.wires {
		c, err := net.Dial("tcp", m.Address(nodeprocess.Query))
		testkit.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		m.wires[i] = rawConn{c, bufio.NewReader(c)}
	}
	for range 2 {
		for kind := range carKinds {
			m.lasting = append(m.lasting, m.newCar(t, kind))
		}
	}
	for _, vid := range access.SandboxVehicles().Sorted() {
		m.lasting = append(m.lasting, car{vid: string(vid), verdicts: [2]verdict{unknownVerdict, unknownVerdict}})
	}
	m.addNobody(t, issued.ID)
	return m
}

// addNobody has texts that somebody might send by mistake.
func (m *matrix) addNobody(t *testing.T, id string) {
	operator, err := m.admin.AddOperator(t.Context(), "grace", false)
	testkit.NoError(t, err)
	real := m.all
	never, _ := access.NewSecret(access.TokenKind)
	sandbox, _ := access.NewSecret(access.SandboxKind)
	for _, s := range []string{
		never, sandbox, m.key, operator.Key, m.admin.Key, id, "", "Bearer%20" + real, real[:len(real)-1], real + "0",
		real[1:], "cst_", strings.ToUpper(real), strings.ToLower(real),
		real + "%00", real + "%20", "0", "null", "cst_" + strings.Repeat("0", 36), strings.Repeat("A", 4000),
	} {
		m.nobody = append(m.nobody, "access_token="+s)
	}
	m.nobody = append(m.nobody, "Access_Token="+real, "token="+real)
	for at := 4; at < len(real); at++ { // each letter in turn
		m.nobody = append(m.nobody, "access_token="+real[:at]+string(rune('0'+(int(real[at])+1)%10))+real[at+1:])
	}
}

// newCar waits until the node knows the car, if it ever reports.
func (m *matrix) newCar(t rapid.TB, kind int) car {
	m.made++
	k := carKinds[kind]
	c := car{vid: fmt.Sprintf("CAR%014d", m.made), verdicts: k.verdicts, made: time.Now().Add(-k.age)}
	if k.signals == "" {
		return c
	}
	ctx := context.Background()
	sample := fmt.Sprintf(`{"vid":"%s","time":%d,"signals":{%s}}`, c.vid, c.made.UnixMilli(), k.signals)
	status, text, err := m.Post(ctx, m.key, sample)
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("the sample %s: got %d %s %v, want 202", sample, status, text, err)
	}
	op := 0
	if c.verdicts[0] == unknownVerdict {
		op = 1
	}
	if err := nodeprocess.Until(ctx, time.Minute, func(ctx context.Context) error {
		a, err := m.Ask(ctx, matrixOperations[op].path, m.all, c.vid)
		if err == nil && a.Reason == "unknown" {
			err = errors.New("a car that reported is not known")
		}
		return err
	}); err != nil {
		t.Fatalf("%s, which reported: got %v, want it known", c.vid, err)
	}
	return c
}

func (m *matrix) issue(t *rapid.T) {
	h := holder{vids: make(map[string]bool)}
	h.operations = rapid.SampledFrom([][2]bool{{true, true}, {true, false}, {false, true}}).Draw(t, "operations")
	r := access.Credential{Developer: "Ada"}
	for op, o := range []access.Operations{access.CarDrivingState, access.ThrottleSystem} {
		if h.operations[op] {
			r.Operations |= o
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "sort") {
	case 0, 1:
		h.all, r.Vehicles = true, access.AllVehicles()
	case 2:
		h.sandbox, r.Kind = true, access.SandboxKind
	case 3:
		h.limit = 5 // one more comes back every twelve minutes
		r.Rate = access.Rate{Calls: int64(h.limit), Window: time.Hour}
	case 4:
		lasts := time.Duration(rapid.IntRange(300, 800).Draw(t, "milliseconds")) * time.Millisecond
		h.expires = time.Now().Add(lasts).Truncate(time.Millisecond)
		r.Expires = h.expires
	}
	if !h.all && !h.sandbox {
		var names []vehicle.ID
		for _, vid := range rapid.SliceOfNDistinct(rapid.SampledFrom(m.grantable()), 1, 8, rapid.ID).Draw(t, "cars") {
			h.vids[vid] = true
			names = append(names, vehicle.ID(vid))
		}
		r.Vehicles = access.VehicleSet(names...)
	}
	issued, err := m.admin.IssueToken(t.Context(), r)
	if err != nil {
		t.Fatalf("the token %+v: got %v, want it issued", r, err)
	}
	h.id, h.secrets = issued.ID, []secret{{text: issued.AccessToken}}
	m.holders = append(m.holders, h)
}

func (m *matrix) pickToken(t *rapid.T, may func(*holder) bool) *holder {
	var which []int
	for i := range m.holders {
		if h := &m.holders[i]; !h.revoked && h.expires.IsZero() && may(h) {
			which = append(which, i)
		}
	}
	if len(which) == 0 {
		t.Skip("no token to change")
	}
	return &m.holders[rapid.SampledFrom(which).Draw(t, "token")]
}

func (m *matrix) grantable() (vids []string) {
	for _, c := range m.cars {
		if !c.gone {
			vids = append(vids, c.vid)
		}
	}
	return vids
}

func (m *matrix) grant(t *rapid.T) {
	h := m.pickToken(t, func(h *holder) bool { return !h.all && !h.sandbox })
	vid := rapid.SampledFrom(m.grantable()).Draw(t, "car")
	vids := maps.Clone(h.vids)
	var add, remove []vehicle.ID
	if vids[vid] {
		remove = []vehicle.ID{vehicle.ID(vid)}
		delete(vids, vid)
	} else {
		add = []vehicle.ID{vehicle.ID(vid)}
		vids[vid] = true
	}
	m.change(t, &m.did.Granted, func() error {
		_, err := m.admin.GrantToken(t.Context(), h.id, add, remove)
		return err
	}, func() { h.vids = vids })
}

func (m *matrix) revoke(t *rapid.T) {
	h := m.pickToken(t, func(*holder) bool { return true })
	m.change(t, &m.did.Revoked, func() error {
		_, err := m.admin.RevokeToken(t.Context(), h.id)
		return err
	}, func() { h.revoked = true })
}

func (m *matrix) rotate(t *rapid.T) {
	overlap := rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 24 * time.Hour}).Draw(t, "overlap")
	h := m.pickToken(t, func(h *holder) bool { return len(h.secrets) < 8 })
	var fresh string
	var until time.Time
	m.change(t, &m.did.Rotated, func() error {
		r, err := m.admin.RotateToken(t.Context(), h.id, overlap)
		if fresh = r.AccessToken; len(r.EarlierUntil) > 0 {
			until = r.EarlierUntil[len(r.EarlierUntil)-1]
		}
		return err
	}, func() {
		h.secrets = slices.Clone(h.secrets)
		for i := range h.secrets { // all older ones end with the one that was replaced last, or before
			if s := &h.secrets[i]; s.end.IsZero() || until.Before(s.end) {
				s.end = cmp.Or(until, time.Unix(1, 0))
			}
		}
		h.secrets = append(h.secrets, secret{text: fresh})
	})
}

func (m *matrix) report(t *rapid.T) {
	m.cars = append(slices.Clone(m.cars), m.newCar(t, rapid.IntRange(0, len(carKinds)-1).Draw(t, "kind")))
}

func (m *matrix) forget(t *rapid.T) {
	added := m.grantable()[len(m.lasting):]
	if len(added) == 0 {
		t.Skip("no car to forget")
	}
	vid := rapid.SampledFrom(added).Draw(t, "car")
	i := slices.IndexFunc(m.cars, func(c car) bool { return c.vid == vid })
	m.change(t, &m.did.Forgotten, func() error {
		_, err := m.admin.Forget(t.Context(), vehicle.ID(vid))
		return err
	}, func() { m.cars[i].verdicts, m.cars[i].gone = [2]verdict{unknownVerdict, unknownVerdict}, true })
}

// Answers during the change are right before or after it.
func (m *matrix) change(t *rapid.T, count *int64, do func() error, apply func()) {
	before := model{slices.Clone(m.cars), slices.Clone(m.holders)}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "questions during the change"), 0))
	done := make(chan error, 1)
	go func() { done <- do() }()
	type exchange struct {
		question
		got string
	}
	var all []exchange
	var err error
	for changing := true; changing; {
		q := m.question(rng, true)
		got := m.send(t, &q)
		all = append(all, exchange{q, got})
		select {
		case err = <-done:
			changing = false
		default:
		}
	}
	if err != nil {
		t.Fatalf("the change: got %v, want no error", err)
	}
	apply()
	*count++
	m.did.During += int64(len(all))
	for _, x := range all {
		m.check(t, &x.question, x.got, &before, &m.model)
	}
}

func (m *matrix) ask(t *rapid.T) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "questions"), 0))
	for range 64 {
		q := m.question(rng, false)
		got := m.send(t, &q)
		m.check(t, &q, got, &m.model)
		if q.holder >= 0 && strings.HasPrefix(got, "HTTP/1.1 200") {
			m.used[m.holders[q.holder].id]++
		}
	}
}

func (m *matrix) question(rng *rand.Rand, unlimited bool) question {
	q := question{operation: rng.IntN(2), car: rng.IntN(len(m.cars)), head: rng.IntN(10) == 0,
		holder: rng.IntN(len(m.holders))}
	h := &m.holders[q.holder]
	switch pick := rng.IntN(20); {
	case pick == 0: // never issued
		never, _ := access.NewSecret(access.TokenKind)
		q.holder, q.query = -1, "access_token="+never
	case pick == 1 || unlimited && h.limit > 0:
		q.holder, q.query = -1, m.nobody[rng.IntN(len(m.nobody))]
	default:
		q.secret, q.left = rng.IntN(len(h.secrets)), h.limit-m.used[h.id]
		q.query = "access_token=" + h.secrets[q.secret].text
		if h.sandbox && pick < 16 { // most cars are unknown to it
			first := slices.IndexFunc(m.cars, func(c car) bool { return strings.HasPrefix(c.vid, "Sandbox") })
			q.car = first + rng.IntN(len(m.lasting)-first)
		}
	}
	return q
}

func (m *matrix) send(t *rapid.T, q *question) string {
	m.did.Asked++
	vid, method, query := m.cars[q.car].vid, "GET", []string{q.query, "vid=" + m.cars[q.car].vid}
	if q.head {
		method = "HEAD"
	}
	if m.did.Asked%2 == 0 {
		slices.Reverse(query)
	}
	request := fmt.Sprintf("%s %s?%s HTTP/1.1\r\nHost: carstate\r\n\r\n",
		method, matrixOperations[q.operation].path, strings.Join(query, "&"))
	q.sent = time.Now()
	text, err := m.wires[m.did.Asked%int64(len(m.wires))].ask(request, q.head)
	if err != nil {
		t.Fatalf("%q: got %v, want an answer", request, err)
	}
	q.received = time.Now()
	if strings.HasPrefix(text, "HTTP/1.1 200") {
		m.did.Served++
	}
	if date := dateHeader.FindStringSubmatch(text); date != nil {
		q.date = date[1]
	}
	return plainly(text, vid)
}

// A model may expect the answer of when the question was sent, or when the answer arrived.
func (m *matrix) check(t *rapid.T, q *question, got string, models ...*model) {
	var want string
	for _, m := range models {
		for _, at := range []time.Time{q.sent, q.received} {
			// D is the Date of the answer, which Last-Modified of the sandbox equals.
			if want = strings.ReplaceAll(m.expected(q, at), "D\r\n", q.date+"\r\n"); q.head {
				want = want[:strings.Index(want, "\r\n\r\n")+4]
			}
			if got == want {
				return
			}
		}
	}
	is, should := strings.Split(got, "\r\n"), strings.Split(want, "\r\n")
	i := 0
	for i+1 < min(len(is), len(should)) && is[i] == should[i] {
		i++
	}
	t.Fatalf("wrong: %s, a vehicle that is %s: answered %q, want %q", m.describe(q), m.known(q), is[i], should[i])
}

func (m *matrix) describe(q *question) string {
	who := "no token"
	if q.holder >= 0 {
		if who = "a token"; m.holders[q.holder].sandbox {
			who = "a sandbox token"
		}
	}
	return who + ", " + matrixOperations[q.operation].name
}

func (m *matrix) known(q *question) string {
	to := "not granted"
	if q.holder < 0 {
		to = "nothing to it"
	} else if h := &m.holders[q.holder]; h.all || h.vids[m.cars[q.car].vid] {
		to = "granted"
	}
	v := m.cars[q.car].verdicts[q.operation]
	return to + " and " + cmp.Or(v.reason, "known")
}

// rawConn returns answers byte for byte, which no client library does.
type rawConn struct {
	conn net.Conn
	in   *bufio.Reader
}

// ask puts L in place of Content-Length's number.
func (w *rawConn) ask(request string, head bool) (string, error) {
	if err := w.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(w.conn, request); err != nil {
		return "", err
	}
	var text strings.Builder
	length := 0
	for line := ""; line != "\r\n"; {
		var err error
		if line, err = w.in.ReadString('\n'); err != nil {
			return "", err
		}
		if l, err := fmt.Sscanf(line, "Content-Length: %d\r\n", &length); err == nil && l == 1 {
			line = "Content-Length: L\r\n"
		}
		text.WriteString(line)
	}
	if head {
		return text.String(), nil
	}
	_, err := io.CopyN(&text, w.in, int64(length))
	return text.String(), err
}
