package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/carstate/internal/periodic"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/cluster/natsconn"
	"example.org/carstate/internal/store/codec"
)

// Nodes keep copies of fedStreams; the heartbeats in each tell the age of a copy.
var fedStreams = []string{codec.States, codec.Tokens, codec.Sources}

const (
	partitionsKey = "carstate.partitions"
	streamsKey    = "carstate.streams" // number of streams of telemetry; missing if 1
)

func telemetryName(i int) string {
	if i == 0 {
		return codec.Telemetry
	}
	return codec.Telemetry + "-" + strconv.Itoa(i)
}

// A carstate with a schema version lower than schemaKey says does not change the stream.
const schemaKey = "carstate.schema"

// AllowDirect is off: only the leader answers requests, because another server may lag. DESIGN.md
// of store says why a full TELEMETRY refuses, and a full STATES drops its oldest record.
func streamConfigs(c Config, m fixedNumbers) []jetstream.StreamConfig {
	lastValue := func(name string, bytes int64, d jetstream.DiscardPolicy, subjects ...string) jetstream.StreamConfig {
		if slices.Contains(fedStreams, name) {
			subjects = append(subjects, codec.HeartbeatSubject(name))
		}
		return jetstream.StreamConfig{
			Name:               name,
			Subjects:           subjects,
			MaxMsgsPerSubject:  1,
			MaxBytes:           bytes,
			Discard:            d,
			AllowAtomicPublish: true,
			// With a longer window, a server that starts would search all its records for ids.
			Duplicates: leastDuplicateWindow,
		}
	}
	var configs []jetstream.StreamConfig
	for i := range m.streams {
		sc := jetstream.StreamConfig{
			Name:              telemetryName(i),
			MaxBytes:          c.TelemetryBytes / int64(m.streams),
			Discard:           jetstream.DiscardNew,
			Duplicates:        duplicateWindow,
			MaxMsgsPerSubject: -1,
		}
		for p := i; p < m.partitions; p += m.streams {
			sc.Subjects = append(sc.Subjects, codec.TelemetrySubject(p))
		}
		if m.streams == 1 {
			sc.Subjects = []string{"telemetry.*"}
		}
		configs = append(configs, sc)
	}
	configs = append(configs,
		lastValue(codec.States, c.StatesBytes, jetstream.DiscardOld, "chunk.*.*.*", "cursor.*", "member.*"),
		lastValue(codec.Tokens, recordBytes, jetstream.DiscardNew, "token.*", "tokenset.*.*", "tokenuse.*.*"),
		lastValue(codec.Sources, recordBytes, jetstream.DiscardNew, "source.*", "sourceset.*.*", "operator.*",
			"tombstone.*", codec.VIDKeysSubject, codec.BackupKeySubject),
		jetstream.StreamConfig{
			Name:              codec.Audit,
			Subjects:          []string{codec.AuditSubject},
			MaxBytes:          recordBytes,
			Discard:           jetstream.DiscardNew,
			DenyDelete:        true,
			DenyPurge:         true,
			MaxMsgsPerSubject: -1,
		},
		lastValue(codec.Roads, recordBytes, jetstream.DiscardOld, codec.RoadPrefix+"*"),
	)
	for i := range configs {
		configs[i].Metadata = map[string]string{schemaKey: strconv.Itoa(codec.SchemaVersion)}
		if name := configs[i].Name; isTelemetry(name) || name == codec.States {
			configs[i].Metadata[partitionsKey] = strconv.Itoa(m.partitions)
			if m.streams > 1 {
				configs[i].Metadata[streamsKey] = strconv.Itoa(m.streams)
			}
		}
		configs[i].Storage = jetstream.FileStorage
		configs[i].Replicas = m.replicas
		configs[i].MaxMsgs, configs[i].MaxMsgSize = -1, -1 // no limits, as the server stores them
	}
	return configs
}

// The first start chooses fixedNumbers, and later ones read them from the streams.
type fixedNumbers struct{ partitions, streams, replicas int } // streams of telemetry

func isTelemetry(name string) bool { return strings.HasPrefix(name, codec.Telemetry) }

func ensureStreams(ctx context.Context, js jetstream.JetStream, c Config) (fixedNumbers, error) {
	// STATES has the number of partitions even if TELEMETRY was lost: each vehicle must stay in the
	// partition under which its state is stored.
	_, was, err := storedStream(ctx, js, codec.States)
	if err == nil {
		err = c.checkPartitions(was.partitions)
	}
	if err != nil {
		return was, err
	}
	replicas := 1
	if strings.Contains(c.URLs, ",") {
		replicas = clusterReplicas
	}
	want := fixedNumbers{
		partitions: cmp.Or(c.Partitions, was.partitions, defaultPartitions),
		replicas:   cmp.Or(c.Replicas, was.replicas, replicas),
	}
	usual := min(max(1, want.partitions/partitionsPerStream), maxStreams)
	want.streams = min(want.partitions, cmp.Or(was.streams, c.Streams, usual))
	for i := 0; i < len(streamConfigs(c, want)); i++ { // TELEMETRY, the first, may change the number of streams
		if err := ensureStream(ctx, js, c, i, &want); err != nil {
			return want, err
		}
	}
	// If the cluster has changed its leader since, the answers above may be invalid.
	_, is, err := storedStream(ctx, js, codec.Telemetry)
	if err == nil && is.partitions != want.partitions {
		err = fmt.Errorf("the stream %s was replaced during the start: start again", codec.Telemetry)
	}
	return want, err
}

func (c Config) checkPartitions(stored int) error {
	if stored != 0 && c.Partitions != 0 && c.Partitions != stored {
		return store.ConfigError(fmt.Errorf("the streams were made with %d partitions, which cannot change: "+
			"leave --partitions out or set it to %d", stored, stored))
	}
	return nil
}

// ensureStream retries: another node may create or remove the stream in between, and a new one may
// not be visible at once.
const (
	ensureTries = 50
	ensureEvery = 100 * time.Millisecond

	noPeers, noCluster = 10005, 10074
	notCreated         = 10049 // presumably, the server is still removing a stream of the same name
)

// For TELEMETRY, ensureStream sets want to the numbers of the stream.
func ensureStream(ctx context.Context, js jetstream.JetStream, c Config, i int, want *fixedNumbers) error {
	name := streamConfigs(c, *want)[i].Name
	var last error
	for range ensureTries {
		stored, is, err := storedStream(ctx, js, name)
		if err != nil {
			return err
		}
		found := stored.Name != ""
		target, change := *want, js.CreateStream
		if found {
			// If the servers have no room, creating an existing stream fails, even with the same
			// configuration.
			change = js.UpdateStream
			target.replicas = cmp.Or(c.Replicas, is.replicas)
			if target.replicas < is.replicas {
				return store.ConfigError(fmt.Errorf("the stream %s has %d copies, "+
					"which --replicas %d would take from all nodes: leave --replicas out or set it to %d; "+
					"for fewer, run nats stream edit on each stream first",
					name, is.replicas, target.replicas, is.replicas))
			}
			if name == codec.Telemetry {
				if err := c.checkPartitions(is.partitions); err != nil {
					return err
				}
				target.partitions, target.streams = is.partitions, is.streams
			} else if isTelemetry(name) && (is.partitions != want.partitions || is.streams != want.streams) {
				return fmt.Errorf("the streams %s and %s have different numbers of partitions: "+
					"delete the one that was made by mistake", codec.Telemetry, name)
			}
		}
		sc := streamConfigs(c, target)[i]
		sc.MaxConsumers = cmp.Or(stored.MaxConsumers, -1) // earlier versions set it
		if name == codec.States {                         // an operator may have raised its limit
			sc.MaxBytes = max(sc.MaxBytes, stored.MaxBytes)
		}
		if !found || !sameStream(sc, stored) && !setUpByNewer(stored) {
			err = natsconn.Patiently(ctx, func(ctx context.Context) error {
				_, err := change(ctx, sc)
				return err
			})
		}
		code := natsconn.Code(err)
		switch {
		case err == nil:
			if i == 0 {
				*want = target
			}
			return nil
		case code == noPeers || code == noCluster:
			return fmt.Errorf("the NATS cluster has too few servers with JetStream "+
				"for %d copies of each stream: start more of them or set --replicas", target.replicas)
		case code == notCreated:
		case !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) && !errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("the stream %s cannot be set up: %w", name, err)
		}
		last = err
		if err := periodic.Pause(ctx, ensureEvery); err != nil {
			return err
		}
	}
	return fmt.Errorf("the stream %s cannot be set up: %w", name, last)
}

// A stream that does not exist has zero values. A TELEMETRY that is not carstate's is an error.
func storedStream(
	ctx context.Context, js jetstream.JetStream, name string,
) (stored jetstream.StreamConfig, is fixedNumbers, err error) {
	var s jetstream.Stream
	err = natsconn.Patiently(ctx, func(ctx context.Context) (err error) {
		s, err = js.Stream(ctx, name)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return stored, is, nil
	case err != nil:
		return stored, is, fmt.Errorf("cannot read the configuration of the streams from NATS: %w", err)
	}
	stored = s.CachedInfo().Config
	is.replicas = stored.Replicas
	is.partitions, _ = strconv.Atoi(stored.Metadata[partitionsKey])
	is.streams, _ = strconv.Atoi(cmp.Or(stored.Metadata[streamsKey], "1"))
	if isTelemetry(name) && min(is.partitions, is.streams) < 1 {
		err = fmt.Errorf("the stream %s is not one of carstate's: use another NATS account", name)
	}
	return stored, is, err
}

func setUpByNewer(stored jetstream.StreamConfig) bool {
	schema, err := strconv.Atoi(stored.Metadata[schemaKey])
	return err == nil && schema > codec.SchemaVersion
}

// A needless update of a stream would undo one that another node has just made.
func sameStream(want, is jetstream.StreamConfig) bool {
	for key, value := range want.Metadata {
		if is.Metadata[key] != value {
			return false
		}
	}
	want.Metadata = is.Metadata // the server adds entries to it
	if want.Duplicates == 0 {
		want.Duplicates = is.Duplicates // the server's default
	}
	return reflect.DeepEqual(want, is)
}

const requestTimeout = 5 * time.Second

// noRecord asks for a sequence that no stream reaches.
const noRecord = `{"seq":4611686018427387904}`

// probeRights requests what does not exist, so nothing is changed, and fails if a right is missing.
// It does not probe the right to create or change streams: an operator may revoke that once they
// exist.
func (e *Engine) probeRights(ctx context.Context) error {
	var requests []*nats.Msg
	request := func(subject, body string) {
		requests = append(requests, &nats.Msg{Subject: subject, Data: []byte(body)})
	}
	for _, config := range e.configs {
		name, subjects := config.Name, config.Subjects
		if isTelemetry(name) {
			subjects = subjects[:1] // one right covers all
		}
		for _, s := range subjects {
			m := nats.NewMsg(strings.ReplaceAll(s, "*", "probe"))
			m.Header.Set(jetstream.ExpectedStreamHeader, "no-such-stream")
			requests = append(requests, m)
		}
		if isTelemetry(name) || name == codec.States {
			// No stream has this subject.
			request("$JS.API.STREAM.PURGE."+name, `{"filter":"`+codec.HeartbeatSubject("probe")+`"}`)
		}
		request("$JS.API.STREAM.MSG.GET."+name, noRecord)
		if name == codec.Audit {
			continue
		}
		request("$JS.API.CONSUMER.CREATE."+name+".probe", "{}") // not a valid consumer
		request("$JS.API.CONSUMER.DELETE."+name+".probe", "{}")
	}
	for _, m := range requests {
		err := natsconn.Patiently(ctx, func(ctx context.Context) error {
			_, err := e.nc.RequestMsgWithContext(ctx, m)
			return err
		})
		switch {
		case errors.Is(err, natsconn.ErrNoLeader):
			return fmt.Errorf("no answer from NATS for %s: does its stream have a leader? (nats stream report)", m.Subject)
		case err != nil:
			return fmt.Errorf("a request to NATS for %s failed: %w", m.Subject, err)
		}
	}
	for _, prefix := range []string{ownerPrefix, replyPrefix, answersPrefix, foldedPrefix, roadsPrefix} {
		subject := prefix + "probe"
		sub, err := e.nc.SubscribeSync(prefix + "*")
		if err == nil {
			err = cmp.Or(e.nc.Publish(subject, codec.SealMessage(subject, []byte{0})), sub.Unsubscribe())
		}
		if err != nil {
			return err
		}
	}
	// These requests get no answer, but a denial arrives before the answer to the next request.
	ctx, cancel := context.WithTimeout(ctx, natsconn.SetupTimeout)
	defer cancel()
	err := cmp.Or(e.nc.Publish("$JS.FC.probe", nil), e.nc.FlushWithContext(ctx))
	if d, ok := natsconn.AsDenial(e.nc.LastError()); ok {
		err = d
	}
	return err
}
