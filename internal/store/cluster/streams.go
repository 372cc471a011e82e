package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/store/codec"
)

// fedStreams carry a heartbeat, because nodes keep copies of them.
var fedStreams = []string{codec.States, codec.Tokens, codec.Sources}

// partitionsKey is the stream metadata that fixes the number of partitions.
const partitionsKey = "carstate.partitions"

// schemaKey is the stream metadata that has the greatest schema version of those that set the stream
// up. An older version leaves the stream as it is.
const schemaKey = "carstate.schema"

// streamConfigs describes every stream. What happens at each limit:
//
//   - TELEMETRY refuses what would exceed its bytes, so that nothing
//     acknowledged is ever dropped by a limit. It has no age limit of its own:
//     the trimmer (trim.go) removes what is both folded and old.
//   - STATES drops its oldest record, which is the vehicle longest unheard of;
//     refusing would refuse updates too. An alarm is logged at 80 %.
//   - TOKENS, SOURCES and AUDIT refuse, and an alarm is logged at 80 %.
//   - ROADS drops its oldest record, which is the tile longest without a car, and
//     an alarm is logged at 80 %.
func streamConfigs(c Config, m made) []jetstream.StreamConfig {
	lastValue := func(name string, bytes int64, d jetstream.DiscardPolicy, subjects ...string) jetstream.StreamConfig {
		subjects = append(subjects, codec.HeartbeatSubject(name))
		return jetstream.StreamConfig{
			Name:               name,
			Subjects:           subjects,
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
			Name:     codec.Telemetry,
			Subjects: []string{"telemetry.*"},
			MaxBytes: c.TelemetryBytes,
			Discard:  jetstream.DiscardNew,
			// Only the leader may say that nothing is left to fold: the
			// trimmer acts on it, and a replica may lag.
			AllowDirect:  false,
			Duplicates:   duplicateWindow,
			MaxConsumers: consumersOf(m.partitions),
		},
		lastValue(codec.States, c.StatesBytes, jetstream.DiscardOld, "state.*.*", "cursor.*", "member.*"),
		lastValue(codec.Tokens, recordBytes, jetstream.DiscardNew, "token.*", "tokenset.*.*", "tokenuse.*", "tokenuse.*.*"),
		lastValue(codec.Sources, recordBytes, jetstream.DiscardNew, "source.*", "sourceset.*.*", "operator.*", "tombstone.*", codec.VIDKeysSubject, codec.BackupKeySubject),
		{
			Name:        codec.Audit,
			Subjects:    []string{codec.AuditSubject},
			MaxBytes:    recordBytes,
			Discard:     jetstream.DiscardNew,
			AllowDirect: true,
			DenyDelete:  true,
			DenyPurge:   true,
		},
		{
			Name:               codec.Roads,
			Subjects:           []string{codec.RoadPrefix + "*"},
			MaxMsgsPerSubject:  1,
			MaxBytes:           recordBytes,
			Discard:            jetstream.DiscardOld,
			AllowDirect:        true,
			AllowAtomicPublish: true,
			Duplicates:         leastDuplicateWindow,
		},
	}
	for i := range configs {
		configs[i].Metadata = map[string]string{schemaKey: strconv.Itoa(codec.SchemaVersion)}
		if name := configs[i].Name; name == codec.Telemetry || name == codec.States {
			configs[i].Metadata[partitionsKey] = strconv.Itoa(m.partitions)
		}
		configs[i].Storage = jetstream.FileStorage
		configs[i].Replicas = m.replicas
	}
	return configs
}

// usualConsumers is how many consumers nats-server lets a stream have that does not
// say how many.
const usualConsumers = 1000

// consumersOf is how many consumers TELEMETRY may have; 0: as many as is usual, which
// an account's own limit need not be raised for. Who folds a partition has one, and for
// some seconds after a node has died the servers keep its own beside those of its
// successors. The trimmer and the console need one now and then. A partition that gets
// none is never folded.
func consumersOf(partitions int) int {
	if partitions <= usualConsumers*9/10 {
		return 0
	}
	return 2*partitions + usualConsumers/2
}

// made is what the first start has fixed, as TELEMETRY says: 0 before.
type made struct{ partitions, replicas int }

// ensureStreams makes the streams that are missing and brings the others up to
// date. It returns the number of partitions, which the first start fixed. Nodes
// that start at once agree, because only one of them makes a stream.
func ensureStreams(ctx context.Context, js jetstream.JetStream, c Config) (int, error) {
	want, err := c.first(ctx, js)
	if err != nil {
		return 0, err
	}
	// TELEMETRY comes first and fixes what the others follow.
	for i := range codec.Streams {
		is, err := ensureStream(ctx, js, c, i, want)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			want = is
		}
	}
	// What was answered while the cluster changed its leader need not stand.
	stored, err := storedStream(ctx, js, codec.Telemetry)
	if err == nil && madeLike(stored).partitions != want.partitions {
		err = fmt.Errorf("the stream %s was replaced during the start: start again", codec.Telemetry)
	}
	return want.partitions, err
}

// first is what the streams are to be like that are not there yet. STATES tells where
// it is there: if TELEMETRY alone is made anew, a state must stay where it will be
// looked for.
func (c Config) first(ctx context.Context, js jetstream.JetStream) (made, error) {
	states, err := storedStream(ctx, js, codec.States)
	if err != nil {
		return made{}, err
	}
	was := madeLike(states)
	if was.partitions > 0 {
		if err := c.checkPartitions(was.partitions); err != nil {
			return made{}, err
		}
	}
	return made{
		partitions: cmp.Or(c.Partitions, was.partitions, defaultPartitions),
		replicas:   cmp.Or(c.Replicas, was.replicas, c.firstReplicas()),
	}, nil
}

// firstReplicas is how many copies streams get that nobody asked any number for.
func (c Config) firstReplicas() int {
	if strings.Contains(c.URLs, ",") {
		return clusterReplicas
	}
	return 1
}

func (c Config) checkPartitions(stored int) error {
	if c.Partitions != 0 && c.Partitions != stored {
		return fmt.Errorf("the streams were made with %d partitions, which cannot change: leave --partitions out or set it to %d", stored, stored)
	}
	return nil
}

// What another node has just made is not always shown at once: it is looked for
// this often.
const (
	ensureTries = 50
	ensureEvery = 100 * time.Millisecond
)

// ensureStream makes one of codec.Streams, or brings it up to date. It is never
// given fewer copies than it has: one node's flag would take them from all.
func ensureStream(ctx context.Context, js jetstream.JetStream, c Config, i int, want made) (made, error) {
	name := codec.Streams[i]
	var last error
	for range ensureTries {
		stored, err := storedStream(ctx, js, name)
		if err != nil {
			return made{}, err
		}
		is, found := madeLike(stored), stored.Name != ""
		target := want
		if found {
			if target.replicas = c.Replicas; target.replicas == 0 {
				target.replicas = is.replicas
			}
			if target.replicas < is.replicas {
				return made{}, fmt.Errorf("the stream %s has %d copies, which --replicas %d would take from all nodes: leave --replicas out or set it to %d; for fewer, run nats stream edit on each stream first",
					name, is.replicas, target.replicas, is.replicas)
			}
			if name == codec.Telemetry {
				if err := c.checkPartitions(is.partitions); err != nil {
					return made{}, err
				}
				target.partitions = is.partitions
			}
		}
		sc := streamConfigs(c, target)[i]
		// Only one node creates it. To create one that is there fails, even if it
		// is the same, where the servers have no room for another one.
		change := js.CreateStream
		if found {
			change = js.UpdateStream
		}
		if !found || !sameStream(sc, stored) && !setUpByNewer(stored) {
			err = patiently(ctx, func(ctx context.Context) error {
				_, err := change(ctx, sc)
				return err
			})
		}
		switch {
		case err == nil:
			return target, nil
		case tooFewPeers(err):
			return made{}, fmt.Errorf("the NATS cluster has too few servers with JetStream for %d copies of each stream: start more of them or set --replicas", target.replicas)
		case unled(err):
			return made{}, errUnled
		case remade(err):
		case !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) && !errors.Is(err, jetstream.ErrStreamNotFound):
			return made{}, fmt.Errorf("the stream %s cannot be set up: %w", name, err)
		}
		last = err // another node has just made or removed it
		select {
		case <-ctx.Done():
			return made{}, ctx.Err()
		case <-time.After(ensureEvery):
		}
	}
	return made{}, fmt.Errorf("the stream %s cannot be set up: %w", name, last)
}

// storedStream reads how a stream was made; the zero value if there is none yet.
func storedStream(ctx context.Context, js jetstream.JetStream, name string) (jetstream.StreamConfig, error) {
	var s jetstream.Stream
	err := patiently(ctx, func(ctx context.Context) (err error) {
		s, err = js.Stream(ctx, name)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return jetstream.StreamConfig{}, nil
	case unled(err):
		return jetstream.StreamConfig{}, errUnled
	case err != nil:
		return jetstream.StreamConfig{}, fmt.Errorf("the engine cannot be asked for its streams: %w", err)
	}
	stored := s.CachedInfo().Config
	if name == codec.Telemetry && madeLike(stored).partitions < 1 {
		return jetstream.StreamConfig{}, fmt.Errorf("the stream %s is not one of carstate's: use another NATS account", codec.Telemetry)
	}
	return stored, nil
}

// madeLike is what a stored stream fixes.
func madeLike(stored jetstream.StreamConfig) made {
	partitions, err := strconv.Atoi(stored.Metadata[partitionsKey])
	if err != nil {
		partitions = 0 // it has none of its own
	}
	return made{partitions, stored.Replicas}
}

// setUpByNewer reports whether a newer version made a stream, or changed it.
func setUpByNewer(stored jetstream.StreamConfig) bool {
	schema, err := strconv.Atoi(stored.Metadata[schemaKey])
	return err == nil && schema > codec.SchemaVersion
}

// sameStream reports whether a stored stream needs no change. An update that changes
// nothing could undo one of a node that starts at the same time.
func sameStream(want, is jetstream.StreamConfig) bool {
	for key, value := range want.Metadata {
		if is.Metadata[key] != value {
			return false
		}
	}
	want.Metadata = is.Metadata // the server adds to it
	// So does it with limits that are not set.
	want.MaxMsgs, want.MaxMsgSize = -1, -1
	if want.MaxConsumers == 0 {
		want.MaxConsumers = -1
	}
	if want.MaxMsgsPerSubject == 0 {
		want.MaxMsgsPerSubject = -1
	}
	if want.Duplicates == 0 {
		want.Duplicates = is.Duplicates
	}
	return reflect.DeepEqual(want, is)
}

// requestTimeout bounds one question to the engine that nobody waits for with
// a deadline of their own.
const requestTimeout = 5 * time.Second

// flowProbe is where to the pace of a consumer that is not there would be answered.
const flowProbe = "$JS.FC.probe"

// sharedProbe is what a node tells of roads that tells nothing.
var sharedProbe = codec.Seal(sharedSubject("probe"), []byte{0})

// probeRights finds out whether the account may do all that is needed later, by
// requests that change nothing: records for a stream of another name, the removal
// of what is not there. What only makes or changes streams is not among them: who
// wants to may take that away once they are made.
func (c *conn) probeRights(ctx context.Context, configs []jetstream.StreamConfig) error {
	var asking sync.WaitGroup
	var failed error
	var mu sync.Mutex
	fail := func(subject string, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = fmt.Errorf("the NATS cluster cannot be asked for %s: %w", subject, err)
		if unled(err) {
			failed = fmt.Errorf("nobody answers for %s: has its stream a leader? (nats stream report)", subject)
		}
	}
	ask := func(m *nats.Msg) {
		asking.Go(func() {
			err := patiently(ctx, func(ctx context.Context) error {
				_, err := c.nc.RequestMsgWithContext(ctx, m)
				return err
			})
			if err != nil {
				fail(m.Subject, err)
			}
		})
	}
	question := func(subject string, body any) {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err) // a map of a string or a number
		}
		m := nats.NewMsg(subject)
		m.Data = text
		ask(m)
	}
	for _, config := range configs {
		for _, s := range config.Subjects {
			m := nats.NewMsg(strings.ReplaceAll(s, "*", "probe"))
			m.Header.Set(jetstream.ExpectedStreamHeader, "no-such-stream")
			ask(m)
		}
	}
	for _, name := range []string{codec.Telemetry, codec.States, codec.Tokens} {
		question("$JS.API.STREAM.PURGE."+name, map[string]any{"filter": codec.HeartbeatSubject("probe")}) // nobody's
	}
	for _, name := range append([]string{codec.Audit, codec.Roads}, fedStreams...) {
		question("$JS.API.DIRECT.GET."+name, map[string]any{"seq": uint64(1) << 62})
	}
	question("$JS.API.STREAM.MSG.DELETE."+codec.States, map[string]any{"seq": uint64(1) << 62})
	for _, name := range append([]string{codec.Telemetry}, fedStreams...) {
		question("$JS.API.STREAM.MSG.GET."+name, map[string]any{"seq": uint64(1) << 62})
		question("$JS.API.CONSUMER.CREATE."+name+".probe", map[string]any{}) // of no stream
		question("$JS.API.CONSUMER.DELETE."+name+".probe", map[string]any{})
	}
	// To these nobody answers, but a refusal comes before the next answer.
	for subject, do := range map[string]func() error{
		flowProbe:              func() error { return c.nc.Publish(flowProbe, nil) },
		sharedSubject("probe"): func() error { return c.nc.Publish(sharedSubject("probe"), sharedProbe) },
		sharedSubject("*"): func() error {
			sub, err := c.nc.SubscribeSync(sharedSubject("*"))
			if err != nil {
				return err
			}
			return sub.Unsubscribe()
		},
	} {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, setupTimeout)
			defer cancel()
			err := cmp.Or(do(), c.nc.FlushWithContext(ctx))
			if d, ok := asDenial(c.nc.LastError()); ok {
				err = d
			}
			if err != nil {
				fail(subject, err)
			}
		})
	}
	asking.Wait()
	return failed
}

// sharedSubject is where a node tells the others what its cars show. It is in no
// stream.
func sharedSubject(node string) string { return "carstate.roads." + node }
