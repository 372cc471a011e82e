package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/broken"
)

// streamNames lists every stream, in the order in which they are made.
var streamNames = []string{Telemetry, States, Tokens, Sources, Audit}

// fedStreams carry a heartbeat, because nodes keep copies of them.
var fedStreams = []string{States, Tokens, Sources}

// partitionsKey is the stream metadata that fixes the number of partitions.
const partitionsKey = "carstate.partitions"

// streamConfigs describes every stream. What happens at each limit:
//
//   - TELEMETRY refuses what would exceed its bytes, so that nothing
//     acknowledged is ever dropped by a limit. It has no age limit of its own:
//     the trimmer (trim.go) removes what is both folded and old.
//   - STATES drops its oldest record, which is the vehicle longest unheard of;
//     refusing would refuse updates too. An alarm is logged at 80 %.
//   - TOKENS, SOURCES and AUDIT refuse, and an alarm is logged at 80 %.
func streamConfigs(c Config, partitions int) []jetstream.StreamConfig {
	lastValue := func(name string, bytes int64, d jetstream.DiscardPolicy, subjects ...string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name:               name,
			Subjects:           append(subjects, heartbeatSubject(name), paddingSubject(name)),
			MaxMsgsPerSubject:  1,
			MaxBytes:           bytes,
			Discard:            d,
			AllowDirect:        true,
			AllowAtomicPublish: true,
			// No write carries an id. With a longer window the server reads
			// all that was stored in it when it starts, to look for some.
			Duplicates: leastDuplicateWindow,
		}
	}
	configs := []jetstream.StreamConfig{
		{
			Name:     Telemetry,
			Subjects: []string{"telemetry.*"},
			MaxBytes: c.TelemetryBytes,
			Discard:  jetstream.DiscardNew,
			// Only the leader may say that nothing is left to fold: the
			// trimmer acts on it, and a replica may lag.
			AllowDirect: false,
			Duplicates:  duplicateWindow,
			Metadata:    map[string]string{partitionsKey: strconv.Itoa(partitions)},
		},
		lastValue(States, c.StatesBytes, jetstream.DiscardOld, "state.*.*", "cursor.*", "member.*"),
		lastValue(Tokens, recordBytes, jetstream.DiscardNew, "token.*", "tokenset.*.*", "tokenuse.*", "tokenuse.*.*"),
		lastValue(Sources, recordBytes, jetstream.DiscardNew, "source.*", "sourceset.*.*", "operator.*", "tombstone.*", vidKeysSubject),
		{
			Name:        Audit,
			Subjects:    []string{auditSubject},
			MaxBytes:    recordBytes,
			Discard:     jetstream.DiscardNew,
			AllowDirect: true,
			DenyDelete:  true,
			DenyPurge:   true,
		},
	}
	for i := range configs {
		configs[i].Storage = jetstream.FileStorage
		configs[i].Replicas = c.Replicas
		if broken.Has(broken.OneReplica) {
			configs[i].Replicas = 1
		}
	}
	return configs
}

// ensureStreams makes the streams that are missing and brings the others up to
// date. It returns the number of partitions, which the first start fixed.
func ensureStreams(ctx context.Context, js jetstream.JetStream, c Config) (int, error) {
	partitions, err := storedPartitions(ctx, js)
	switch {
	case err != nil:
		return 0, err
	case partitions == 0 && c.Partitions != 0:
		partitions = c.Partitions
	case partitions == 0 && c.embedded():
		partitions = embeddedPartitions
	case partitions == 0:
		partitions = externalPartitions
	case c.Partitions != 0 && c.Partitions != partitions:
		return 0, fmt.Errorf("the streams were made with %d partitions, which cannot change: leave --partitions out or set it to %d", partitions, partitions)
	}
	for _, sc := range streamConfigs(c, partitions) {
		if _, err := js.CreateOrUpdateStream(ctx, sc); tooFewPeers(err) {
			return 0, fmt.Errorf("the NATS cluster has too few servers with JetStream for %d copies of each stream: start more of them or set --replicas", c.Replicas)
		} else if err != nil {
			return 0, fmt.Errorf("the stream %s cannot be set up: %w", sc.Name, err)
		}
	}
	return partitions, nil
}

// storedPartitions reads the number of partitions that the streams were made
// with, 0 if there are none yet.
func storedPartitions(ctx context.Context, js jetstream.JetStream) (int, error) {
	s, err := js.Stream(ctx, Telemetry)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("the engine cannot be asked for its streams: %w", err)
	}
	n, err := strconv.Atoi(s.CachedInfo().Config.Metadata[partitionsKey])
	if err != nil || n < 1 {
		return 0, fmt.Errorf("the stream %s is not one of carstate's: use another NATS account", Telemetry)
	}
	return n, nil
}

// requestTimeout bounds one question to the engine that nobody waits for with
// a deadline of their own.
const requestTimeout = 5 * time.Second
