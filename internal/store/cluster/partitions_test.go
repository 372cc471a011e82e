package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/testkit"
)

// States are found in their partitions, and telemetry in its stream, also if a stream is created
// again. Earlier versions have all in one.
func TestPartitionsAreFixed(t *testing.T) {
	t.Parallel()
	for streams, subjects := range map[int]string{1: "[telemetry.*]", 2: "[telemetry.0 telemetry.2]"} {
		url := clustertest.Account(t)
		js := clustertest.JetStream(t, url)
		for i, n := range []int{3, 0, 3} {
			for again := range 2 {
				e, err := Open(t.Context(), Config{Partitions: n, Streams: streams + i + again, URLs: url})
				testkit.NoError(t, err)
				if got := e.Partitions(); got != 3 || e.streams != streams {
					t.Errorf("%d partitions in %d streams; want 3 in %d", got, e.streams, streams)
				}
				e.Close()
				_, info := stream(t, js, codec.Telemetry)
				if got := fmt.Sprint(info.Config.Subjects); got != subjects {
					t.Errorf("%s has %s, want %s", codec.Telemetry, got, subjects)
				}
				refused(t, Config{Partitions: 4, URLs: url}, "made with 3 partitions")
			}
			lost := []string{codec.Telemetry, codec.States, telemetryName(streams - 1)}[i]
			testkit.NoError(t, js.DeleteStream(t.Context(), lost))
			if lost != codec.States {
				refused(t, Config{Partitions: 4, URLs: url}, "made with 3 partitions")
			}
		}
	}
}

func TestStreamsOfDifferentStarts(t *testing.T) {
	t.Parallel()
	url := clustertest.Account(t)
	open(t, split(Config{URLs: url})).Close()
	for _, name := range []string{codec.Telemetry, codec.States} {
		testkit.NoError(t, clustertest.JetStream(t, url).DeleteStream(t.Context(), name))
	}
	refused(t, Config{Partitions: 3, Streams: 2, URLs: url}, "TELEMETRY and TELEMETRY-1 have different numbers of partitions")
}

func TestForeignStream(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]map[string]string{
		"without metadata":    nil,
		"with other metadata": {"owner": "somebody"},
		"with nonsense":       {"carstate.partitions": "many"},
		"with no partitions":  {"carstate.partitions": "0"},
	} {
		t.Run(name, func(t *testing.T) {
			url := clustertest.Account(t)
			js := clustertest.JetStream(t, url)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: codec.Telemetry, Subjects: []string{"probes.>"}, Metadata: metadata,
			}); err != nil {
				t.Fatalf("CreateStream: got %v, want no error", err)
			}
			refused(t, Config{URLs: url}, "not one of carstate's")
			_, info := stream(t, js, codec.Telemetry)
			if got := info.Config.Subjects; len(got) != 1 || got[0] != "probes.>" {
				t.Errorf("the subjects of the foreign stream: got %q, want only probes.>", got)
			}
			if _, err := js.Stream(t.Context(), codec.States); err == nil {
				t.Errorf("the stream %s beside the foreign one: got it, want none", codec.States)
			}
		})
	}
}

func TestExternalRefused(t *testing.T) {
	t.Parallel()
	withPassword := "nats://me:secret@" + deadAddr(t)
	for _, urls := range []string{withPassword, withPassword + "x", "nats://me:secret%zz@host"} {
		refused(t, Config{URLs: urls}, "cannot be reached")
		if _, err := Open(t.Context(), Config{URLs: urls}); strings.Contains(err.Error(), "secret") {
			t.Errorf("the error: got %v, want it without the password", err)
		}
	}

	small := clustertest.StartProcess(t, "jetstream { max_file_store: 1PB }, max_payload: 512KB")
	refused(t, Config{URLs: small.URL()}, "max_payload")
	refused(t, Config{URLs: strings.Replace(small.URL(), "nats://", "tls://", 1)}, "offers no TLS")
}
