package sample

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"carstate/internal/access"
	"carstate/internal/derive"
	"carstate/internal/fleet"
	"carstate/internal/ingest"
	"carstate/internal/nodeprocess"
	"carstate/internal/stream"
	"carstate/internal/vehicle"
)

// stage is a part of what a sample costs, told by the functions on the stack.
// The first stage that names any of them gets its time.
type stage struct {
	name  string
	parts []string // of the functions' full names
}

// stages are looked through in this order. The last takes what is left.
var stages = []stage{
	{"generator", []string{"bench/sample.(*sender)", "bench/sample.(*body)", "fasthttp.(*HostClient)"}},
	{"decode and authorise", []string{"ingest.(*reader)", "ingest.(*batch)", "ingest.(*HTTP).read"}},
	{"telemetry: read back", []string{"stream.(*Partition).Next"}},
	{"states: pack and send", []string{"stream.(*Partition).Commit", "stream.(*Engine).storeBatch"}},
	{"states: the engine's atomic batch", []string{"server.(*stream).processJetStreamAtomicBatchMsg"}},
	{"telemetry: pack and send", []string{"stream.(*Engine).Append", "stream.(*Engine).pack", "stream.(*committer)"}},
	{"telemetry: the engine stores", []string{"server.(*stream).processJetStreamMsg", "server.(*stream).processInboundJetStreamMsg"}},
	{"derive: fold", []string{"derive.(*Deriver)"}},
	{"feed into the fleet table", []string{"stream.(*feed)"}},
	{"the engine sends to derive and the feed", []string{"server.(*consumer)"}},
	{"the engine's connection and client", []string{"server.(*client)", "nats-io/nats%2ego.", "server.(*stream)"}},
	{"HTTP", []string{"net/http.(*conn)", "net/http.(*Server)"}},
	{"the engine, in the background", []string{"nats-server"}},
	{"garbage collection", []string{"runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge"}},
	{"scheduler and the rest", []string{""}},
}

// inside is a node in this process, put together as cmd/carstate does it, so
// that its stages can be told apart in a CPU profile.
type inside struct {
	engine *stream.Engine
	door   *ingest.HTTP
	fleet  *fleet.Table
	derive *derive.Deriver
	stop   context.CancelFunc
	addr   string // where it takes telemetry
	key    string // of a source that speaks for all vehicles
}

func startInside(ctx context.Context, dir string) (*inside, error) {
	e, err := stream.Open(ctx, stream.Config{DataDir: dir})
	if err != nil {
		return nil, err
	}
	in := &inside{engine: e, fleet: fleet.New()}
	background, stop := context.WithCancel(ctx)
	in.stop = stop
	go func() {
		_ = e.FollowStates(background, func(id vehicle.ID, st vehicle.State) {
			in.fleet.Put(id, fleet.Answer{Driving: st.Driving(), Throttle: st.Throttle()})
		}, func() {})
	}()
	in.derive = derive.New(derive.Config{
		Partitions: e.Partitions(), MaxStates: max(stream.BatchStates, stream.MaxStates/e.Partitions()), MaxCached: 200_000 / e.Partitions(),
		Take: func(ctx context.Context, p int) (derive.Partition, error) { return e.Take(ctx, p, "bench") },
	})
	go in.derive.Run(background)

	var sources access.Sources
	source, key, err := access.AddSource(sourceName, access.AllVehicles(), time.Time{}, time.Now())
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	sources.Put(source)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	in.door = ingest.NewHTTP(ingest.Config{Store: e, Sources: &sources})
	go func() { _ = in.door.Serve(l) }()
	in.addr, in.key = l.Addr().String(), key
	return in, nil
}

func (in *inside) close() error {
	in.stop()
	if in.door != nil {
		_ = in.door.Shutdown(context.Background())
	}
	return in.engine.Close()
}

// runStages sends bodies to a node in this process under a CPU profile and
// returns the CPU time of each stage for one sample.
func runStages(ctx context.Context, dir string, bodies []*body, connections int, lasting time.Duration) (_ map[string]time.Duration, err error) {
	in, err := startInside(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	s := newSender(in.addr, in.key, connections)
	defer s.client.CloseIdleConnections()
	var raw bytes.Buffer
	if err := pprof.StartCPUProfile(&raw); err != nil {
		return nil, err
	}
	sent, err := s.send(ctx, bodies, connections, lasting)
	if err == nil {
		err = nodeprocess.Until(ctx, 2*time.Minute, func(context.Context) error {
			if n := in.derive.Samples(); n < uint64(sent) {
				return fmt.Errorf("%d of %d samples were judged", n, sent)
			}
			return nil
		})
	}
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	p, err := profile.ParseData(raw.Bytes())
	if err != nil {
		return nil, err
	}
	of := make(map[string]time.Duration)
	for _, s := range p.Sample {
		of[stageOf(s)] += time.Duration(s.Value[1])
	}
	for name := range of {
		of[name] /= time.Duration(sent)
	}
	return of, nil
}

// stageOf finds the stage of one stack.
func stageOf(s *profile.Sample) string {
	for _, st := range stages {
		for _, l := range s.Location {
			for i := range l.Line {
				for _, part := range st.parts {
					if strings.Contains(l.Line[i].Function.Name, part) {
						return st.name
					}
				}
			}
		}
	}
	return ""
}
