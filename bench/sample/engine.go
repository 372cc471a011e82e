package sample

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"carstate/internal/stream"
	"carstate/internal/vehicle"
)

// What a commit of samples holds when there are many.
const (
	packedSample  = 41 // bytes of a packed sample of newBody
	commitSamples = 999
)

// engineRates are what JetStream does by itself with the same bytes and the same
// settings, in this process: what carstate can at best come near.
type engineRates struct {
	packed float64 // samples a second in messages of commitSamples, one after the other
	single float64 // samples a second in messages of one, many under way
}

func runEngine(ctx context.Context, dir string, lasting time.Duration) (_ engineRates, err error) {
	s, err := server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, NoLog: true, JetStream: true, SyncAlways: true,
		StoreDir: filepath.Join(dir, "jetstream"),
	})
	if err != nil {
		return engineRates{}, err
	}
	s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(time.Minute) {
		return engineRates{}, errors.New("JetStream does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return engineRates{}, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return engineRates{}, err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "BENCH", Subjects: []string{"bench.>"}}); err != nil {
		return engineRates{}, err
	}
	var r engineRates
	message, start, n := bytes.Repeat([]byte{'x'}, packedSample*commitSamples), time.Now(), 0
	for time.Since(start) < lasting {
		if _, err := js.Publish(ctx, "bench.packed", message); err != nil {
			return r, err
		}
		n++
	}
	r.packed = float64(n*commitSamples) / time.Since(start).Seconds()

	start, n = time.Now(), 0
	for time.Since(start) < lasting {
		if _, err := js.PublishAsync("bench.single", message[:packedSample], jetstream.WithStallWait(time.Minute)); err != nil {
			return r, err
		}
		n++
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return r, ctx.Err()
	}
	r.single = float64(n) / time.Since(start).Seconds()
	return r, nil
}

// runStates is how many states a second one partition stores in atomic batches,
// as derive hands them over.
func runStates(ctx context.Context, dir string, lasting time.Duration) (_ float64, err error) {
	e, err := stream.Open(ctx, stream.Config{DataDir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	p, err := e.Take(ctx, 0, "bench")
	if err != nil {
		return 0, err
	}
	defer p.Close()
	states := make(map[vehicle.ID]vehicle.State, commitSamples)
	for i := range commitSamples {
		x := vehicle.Sample{Vehicle: vehicle.ID(vid(i)), Time: 1}
		err := errors.Join(x.Set(vehicle.Speed, 50), x.Set(vehicle.ThrottlePosition, 20), x.Set(vehicle.EngineSpeed, 1800))
		if err != nil {
			return 0, err
		}
		states[x.Vehicle] = vehicle.Observe(vehicle.State{}, x)
	}
	start, n := time.Now(), 0
	for time.Since(start) < lasting {
		if err := p.Commit(ctx, uint64(n+1), states); err != nil {
			return 0, err
		}
		n++
	}
	return float64(n*commitSamples) / time.Since(start).Seconds(), nil
}
