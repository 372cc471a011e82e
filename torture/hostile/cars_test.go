package hostile

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/ingest"
	"carstate/internal/vehicle"
)

// memory is a store that keeps whose samples it got.
type memory struct {
	mu   sync.Mutex
	vids map[string]bool
}

func (m *memory) Append(_ context.Context, samples []vehicle.Sample) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range samples {
		m.vids[string(samples[i].Vehicle)] = true
	}
	return nil
}

// The doors of telemetry and what is expected of them agree, whatever is sent.
func TestHostileCars(t *testing.T) {
	store := &memory{vids: make(map[string]bool)}
	sources := new(access.Sources)
	var own []vehicle.ID
	for i := range 10 {
		own = append(own, vehicle.ID(ownCar(i)))
	}
	source, key, err := access.AddSource("hostile", access.VehicleSet(own...), time.Time{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	sources.Put(source)
	listen := func(serve func(net.Listener) error, over error, shutdown func(context.Context) error) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- serve(l) }()
		t.Cleanup(func() {
			if err := shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, over) {
				t.Error(err)
			}
		})
		return l.Addr().String()
	}
	config := ingest.Config{Store: store, Sources: sources}
	m, h := ingest.NewMQTT(config), ingest.NewHTTP(config)
	byMQTT := listen(m.Serve, net.ErrClosed, m.Shutdown)
	byHTTP := listen(h.Serve, http.ErrServerClosed, h.Shutdown)

	rng := rand.New(rand.NewPCG(1, 1))
	w := &writer{Rand: rng, name: "a", tokens: []*token{{secret: "cst_x"}}, strange: []string{"x"}, cars: []string{"A"}}
	car := &hostileCar{writer: w, source: "hostile", key: key}
	met := new(hostility)
	for range 400 {
		met.cars.Add(1)
		met.uploads.Add(1)
		s := car.connection()
		x := talk(t.Context(), "127.0.0.1", byMQTT, s.stream, rng)
		if wrong := s.judge(x.got); x.err != nil || wrong != "" {
			t.Errorf("%v, %s: %s to %s", x.err, wrong, shown(x.got), shown(s.stream))
		}
		met.stored.Add(int64(s.stored))
		met.denied.Add(int64(s.denied))
		if s.letIn {
			met.letIn.Add(1)
		}
		upload, mayAccept := car.upload()
		x = talk(t.Context(), "127.0.0.1", byHTTP, upload, rng)
		taken, refused, wrong := judgeUpload(x.got, mayAccept)
		met.taken.Add(int64(taken))
		met.refused.Add(int64(refused))
		if x.err != nil || wrong != "" {
			t.Errorf("%v, %s: %s to %s", x.err, wrong, shown(x.got), shown(upload))
		}
	}
	if met.letIn.Load() < 100 || met.stored.Load() < 5 || met.denied.Load() < 50 || met.taken.Load() < 50 || met.refused.Load() < 100 {
		t.Errorf("let in %d, stored %d, denied %d, taken %d, refused %d", met.letIn.Load(), met.stored.Load(), met.denied.Load(), met.taken.Load(), met.refused.Load())
	}
	a := attempt(t)
	met.judge(a)
	if o := a.Outcome(); !o.Passed() {
		t.Errorf("%+v", o)
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	for vid := range store.vids {
		if !strings.HasPrefix(vid, "Own") {
			t.Errorf("a sample of %s was stored", vid)
		}
	}
	if len(store.vids) != 10 {
		t.Errorf("of %d cars samples were stored", len(store.vids))
	}
}

// What a broken server would send is seen.
func TestJudge(t *testing.T) {
	good := []byte{connack, 2, 0, 0}
	with := func(parts ...[]byte) []byte { return append(bytes.Clone(good), bytes.Join(parts, nil)...) }
	for _, test := range []struct {
		title string
		sent  sent
		got   []byte
		wrong bool

		letIn, stored, denied int
	}{
		{"let in", sent{version: 4, known: true}, good, false, 1, 0, 0},
		{"closed", sent{version: 4}, nil, false, 0, 0, 0},
		{"let in without a right", sent{version: 4}, good, true, 0, 0, 0},
		{"a good message", sent{version: 4, known: true, good: map[uint16]bool{7: true}}, with([]byte{puback, 2, 0, 7}), false, 1, 1, 0},
		{"another message", sent{version: 4, known: true, good: map[uint16]bool{7: true}}, with([]byte{puback, 2, 0, 8}), true, 0, 0, 0},
		{"a message refused", sent{version: 5, known: true}, with([]byte{puback, 3, 0, 8, 0x87}), false, 1, 0, 0},
		{"subscribed", sent{version: 4, known: true}, with([]byte{suback, 3, 0, 8, 1}), true, 0, 0, 0},
		{"not subscribed", sent{version: 4, known: true}, with([]byte{suback, 4, 0, 8, 0x80, 0x80}), false, 1, 0, 2},
		{"subscribed by MQTT 5", sent{version: 5, known: true}, with([]byte{suback, 5, 0, 8, 0, 0x87, 1}), true, 0, 0, 0},
		{"not subscribed by MQTT 5", sent{version: 5, known: true}, with([]byte{suback, 5, 0, 8, 0, 0x87, 0x87}), false, 1, 0, 2},
		{"a SUBACK without codes", sent{version: 5, known: true}, with([]byte{suback, 3, 0, 8, 0}), true, 0, 0, 0},
		{"a message for a car", sent{version: 4, known: true}, with([]byte{0x30, 3, 0, 1, 'a'}), true, 0, 0, 0},
		{"half a packet", sent{version: 4, known: true}, with([]byte{puback, 2, 0}), true, 0, 0, 0},
		{"no CONNACK", sent{version: 4, known: true}, []byte{pingresp, 0}, true, 0, 0, 0},
	} {
		if got := test.sent.judge(test.got); (got != "") != test.wrong {
			t.Errorf("%s: %q", test.title, got)
		}
		s, seen := &test.sent, [3]int{test.letIn, test.stored, test.denied}
		if got := [3]int{map[bool]int{true: 1}[s.letIn], s.stored, s.denied}; !test.wrong && got != seen {
			t.Errorf("%s: let in, stored, denied: %d", test.title, got)
		}
	}
	for answer, wrong := range map[string]bool{
		"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n":                        true,
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n":                       false,
		"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n":                            true,
		"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n":                           true,
		"HTTP/1.1 503 Later\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n":         false,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n": false,
	} {
		if _, _, got := judgeUpload([]byte(answer), false); (got != "") != wrong {
			t.Errorf("%q: %q", answer, got)
		}
	}
}

// Hostile cars of which none got anywhere are a finding.
func TestHostility(t *testing.T) {
	a := attempt(t)
	nothing := new(hostility)
	nothing.cars.Add(100)
	nothing.uploads.Add(100)
	if nothing.judge(a); a.Outcome().Wrong != 5 {
		t.Errorf("%+v", a.Outcome())
	}
}

// A line of the log that a stranger could have written is a finding.
func TestLogWatch(t *testing.T) {
	for line, wrong := range map[string]bool{
		`{"time":"x","level":"WARN","msg":"x"}`:              false,
		`{"time":"x","level":"ERROR","msg":"x"}`:             true,
		`{"time":"x","level":"INFO","msg":"x","panic":"a"}`:  true,
		`{"time":"x","level":"INFO","msg":"x","a":"css_yz"}`: true,
		`owned`: true,
	} {
		a := attempt(t)
		l := &logWatch{attempt: a}
		l.secrets("css_yz")
		l.hear([]byte(line))
		if o := a.Outcome(); o.Passed() == wrong {
			t.Errorf("%s: %+v", line, o)
		}
	}
}
