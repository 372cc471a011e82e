package cluster_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store/cluster"
	"carstate/internal/store/cluster/clustertest"
	"carstate/internal/store/codec"
	"carstate/internal/testkit"
)

// TestPartitionsAreFixed checks that the number of partitions is fixed when the streams are
// created.
func TestPartitionsAreFixed(t *testing.T) {
	t.Parallel()
	c := cluster.Config{URLs: clustertest.External(t)}
	for _, n := range []int{3, 0, 3} {
		c.Partitions = n
		hasThree(t, c)
	}
	c.Partitions = 4
	refused(t, c, "made with 3 partitions")
	c.Partitions = 0
	hasThree(t, c) // also after the refusal
}

// hasThree opens an engine and checks that its streams have three partitions.
func hasThree(t *testing.T, c cluster.Config) {
	t.Helper()
	e, err := cluster.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := e.Partitions(); got != 3 {
		t.Errorf("%d partitions; want 3", got)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestConsumersOfMadeStreams checks that TELEMETRY, if it exists with another consumer limit, gets
// the limit that its number of partitions needs, and keeps it at later starts.
func TestConsumersOfMadeStreams(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	server := clustertest.StartServer(t)
	c := cluster.Config{Partitions: 1001, URLs: server.URL()}
	most := func() (is jetstream.StreamConfig) {
		open(t, c)
		s, err := server.JetStream().Stream(t.Context(), codec.Telemetry)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().Config
	}
	made := most()
	if made.MaxConsumers != 2*1001+500 {
		t.Errorf("it was made for %d consumers", made.MaxConsumers)
	}
	made.MaxConsumers = -1
	if _, err := server.JetStream().UpdateStream(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n := most().MaxConsumers; n != 2*1001+500 {
			t.Errorf("the limit is %d consumers after a start, want %d", n, 2*1001+500)
		}
	}
}

// TestPartitionsOutlastTelemetry checks that the number of partitions remains when only TELEMETRY
// is re-created, because the stored states must be found in their partitions.
func TestPartitionsOutlastTelemetry(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	server := clustertest.StartServer(t)
	c := cluster.Config{Partitions: 3, URLs: server.URL()}
	for _, n := range []int{3, 0, 3} {
		c.Partitions = n
		hasThree(t, c)
		if err := server.JetStream().DeleteStream(t.Context(), codec.Telemetry); err != nil {
			t.Fatal(err)
		}
		c.Partitions = 4
		refused(t, c, "made with 3 partitions")
	}
}

// TestForeignStream checks a NATS account that has a stream with the name of one of carstate's
// streams, but not created by carstate. Open must fail, and must change nothing.
func TestForeignStream(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]map[string]string{
		"without metadata":    nil,
		"with other metadata": {"owner": "somebody"},
		"with nonsense":       {"carstate.partitions": "many"},
		"with no partitions":  {"carstate.partitions": "0"},
	} {
		t.Run(name, func(t *testing.T) {
			server := clustertest.StartServer(t)
			js := server.JetStream()
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: codec.Telemetry, Subjects: []string{"probes.>"}, Metadata: metadata,
			}); err != nil {
				t.Fatal(err)
			}
			refused(t, cluster.Config{URLs: server.URL()}, "not one of carstate's")
			s, err := js.Stream(t.Context(), codec.Telemetry)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.CachedInfo().Config.Subjects; len(got) != 1 || got[0] != "probes.>" {
				t.Errorf("the stream now has the subjects %v", got)
			}
			if _, err := js.Stream(t.Context(), codec.States); err == nil {
				t.Error("a stream was made beside the foreign one")
			}
		})
	}
}

// TestExternalRefused checks that a cluster that accepts only small messages is refused at the
// start, not at the first large commit. A cluster that cannot be reached must be refused, too. The
// error must not repeat the address, which may contain a password.
func TestExternalRefused(t *testing.T) {
	t.Parallel()
	s := clustertest.StartServer(t)
	url := s.URL()
	s.Stop()
	withPassword := strings.Replace(url, "nats://", "nats://me:secret@", 1)
	for _, urls := range []string{withPassword, withPassword + "x", "nats://me:secret%zz@host"} {
		refused(t, cluster.Config{URLs: urls}, "cannot be reached")
		if _, err := cluster.Open(t.Context(), cluster.Config{URLs: urls}); strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}

	small := clustertest.StartProcess(t, "jetstream {}, max_payload: 512KB")
	refused(t, cluster.Config{URLs: small.URL()}, "max_payload")
	refused(t, cluster.Config{URLs: strings.Replace(small.URL(), "nats://", "tls://", 1)}, "offers no TLS")
}
