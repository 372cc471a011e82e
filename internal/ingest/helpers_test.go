package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ingest"
	"example.org/carstate/internal/listen"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/telemetry"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

var testNow = time.Date(2026, 11, 20, 4, 0, 10, 0, time.UTC)

const (
	telemetryPath   = "/v1/telemetry"
	members         = ": a sample has the members vid, time and signals"
	requestBytes    = 64 << 10
	readerBytes     = 128 << 10
	reservationStep = 16 << 10
	headBytes       = 4 << 10
	chargedBytes    = 4 << 10
	maxQueued       = 4 << 20
	maxPacket       = 1 << 20
	maxRejections   = 1000
	maxClientID     = 1024
	maxCodes        = 255
	receiveMaximum  = 128
	maxSample       = telemetry.MaxSample
	maxSamples      = telemetry.MaxSamples
	maxMapped       = telemetry.MaxMapped
	decoders        = 2
)

type memory struct {
	mu      sync.Mutex
	samples []vehicle.Sample
	append  func(context.Context) error // called first
}

var errDisk = errors.New("the disk is gone")

func (m *memory) Append(ctx context.Context, samples []vehicle.Sample) error {
	if m.append != nil {
		if err := m.append(ctx); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = append(m.samples, samples...)
	return nil
}

func (m *memory) describe() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []string{}
	for _, x := range m.samples {
		v, _ := x.Value(signal.Speed)
		list = append(list, fmt.Sprintf("%s %g", x.Vehicle, v))
	}
	return list
}

func (m *memory) wants(t *testing.T, wants ...string) {
	t.Helper()
	if got := m.describe(); !slices.Equal(got, wants) {
		t.Errorf("stored %q, want %q", got, wants)
	}
}

// fixture's source "car" may write for V1 and V2.
type fixture struct {
	ingest.Config
	store    *memory
	registry *prometheus.Registry
	source   access.Credential
	key      string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{store: new(memory), registry: prometheus.NewRegistry()}
	f.Config = ingest.Config{
		Store:     f.store,
		Sources:   new(access.Sources),
		Unfolded:  new(full), // until 1970
		Forgotten: func(vehicle.ID) bool { return false },
		Admit:     func(vehicle.ID) bool { return true },
		Verdicts:  func(vehicle.ID) (d vehicle.DrivingVerdict, t vehicle.ThrottleVerdict) { return d, t },
		Ready:     func() error { return nil },
		ReadOnly:  func() bool { return false },
		Log:       slog.New(slog.DiscardHandler),
		Registry:  f.registry,
		Now:       func() time.Time { return testNow },
	}
	f.source, f.key = f.add(t, "car", access.VehicleSet("V1", "V2"))
	return f
}

// limit returns a function that begins an overload, with room for one connection.
func (f *fixture) limit(t *testing.T) (overload func()) {
	probe := new(listen.Probe)
	f.Limit = listen.NewLimit(probe, listen.Bounds{Least: 1, Idle: time.Hour})
	return func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- probe.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		testkit.Await(t, "the overload begins", f.Limit.Active)
	}
}

func (f *fixture) add(t testing.TB, name string, v access.Vehicles) (access.Credential, string) {
	t.Helper()
	return f.addSource(t, access.Credential{Name: name, Vehicles: v})
}

func (f *fixture) addSource(t testing.TB, r access.Credential) (access.Credential, string) {
	t.Helper()
	r.Kind = access.SourceKind
	s, key, err := access.New(r, testNow)
	testkit.NoError(t, err)
	f.Sources.Put(s)
	return s, key
}

func (f *fixture) remove(s access.Credential) {
	s.Ended = testNow
	f.Sources.Put(s)
}

func mistyped(key string) string {
	last := "x"
	if key[len(key)-1] == 'x' {
		last = "y"
	}
	return key[:len(key)-1] + last
}

func (f *fixture) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return testkit.Metric(t, f.registry, name, labels...)
}

func (f *fixture) wantMetric(t *testing.T, wants float64, name string, labels ...string) {
	t.Helper()
	if got := f.metric(t, name, labels...); got != wants {
		t.Errorf("%s%q is %g, want %g", name, labels, got, wants)
	}
}

// s is in seconds after 04:00.
func sampleLine(vid string, s int, speed float64) string {
	return fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":%g}}`, vid, 1795147200000+s*1000, speed)
}

func codesLine(s, n int) string {
	codes := strings.TrimSuffix(strings.Repeat(`"P0121",`, n), ",")
	return fmt.Sprintf(`{"vid":"V1","time":%d,"signals":{"Vehicle.OBD.DTCList":[%s]}}`, 1795147200000+s*1000, codes)
}

func shutdownContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}
