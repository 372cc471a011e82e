package cluster

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/signal"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/test/clustertest"
	"example.org/carstate/internal/test/storetest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

func follow(t *testing.T, e *Engine) {
	t.Helper()
	ready := make(chan struct{})
	background(t, func(ctx context.Context) error { return e.FollowCursors(ctx, 0, func() { close(ready) }) })
	<-ready
}

func TestOutage_RecoversWithoutLoss(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	server := clustertest.StartServer(t)
	e := open(t, Config{Partitions: 1, URLs: server.URL(), Timeouts: impatient})
	ctx := testkit.Context(t)
	follow(t, e)
	storetest.RunKeeper(t, e, store.Config{})
	part, _ := live(t, e, 0)
	at, read := int64(0), int64(0)
	add := func() {
		t.Helper()
		at++
		storeSample(t, e, at)
	}
	fold := func() {
		t.Helper()
		for read < at {
			seq, samples := next(t, part)
			for _, x := range samples {
				if read++; int64(x.Time) != read {
					t.Fatalf("the sample: got that of %d, want %d", x.Time, read)
				}
			}
			save(t, part, seq)
		}
	}
	testkit.Await(t, "the engine is healthy", func() bool { return healthy(e) })
	for range 2 {
		for range 10 {
			add()
		}
		fold()
		add()
		server.Stop()
		testkit.Await(t, "the copy grows old", func() bool {
			age, err := e.FeedAge()
			return err == nil && age > time.Second
		})
		testkit.Await(t, "the engine says that it stores nothing", func() bool { return e.Writable() != nil })
		_, err := e.Ask(ctx, 0, &store.Question{Kind: store.AskState}) // this node is the owner
		testkit.NoError(t, err)
		// An Append that begins during the outage succeeds once the outage is over.
		stored := make(chan error, 1)
		at++
		go func(at int64) { stored <- e.Append(ctx, []vehicle.Sample{sample("car", at)}) }(at)
		server.Start()
		if err := <-stored; err != nil {
			t.Fatalf("Append across the outage: got %v, want no error", err)
		}
		fold()
		testkit.Await(t, "the engine is healthy again", func() bool { return healthy(e) })
	}
}

// While Writable returns an error, no caller stores, so the engine must try by itself.
func TestCommitGivenUp_WritableAgainByItself(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	server := clustertest.StartServer(t)
	e := open(t, Config{Partitions: 1, Patience: store.Patience{Store: 2 * time.Second},
		URLs: server.URL(), Timeouts: impatient})
	ctx := testkit.Context(t)
	part := take(t, e, 0)
	for round := range int64(2) {
		server.Stop()
		if err := e.Append(ctx, []vehicle.Sample{sample("car", 2*round+1)}); err == nil {
			t.Fatal("Append without a server: got no error, want one")
		}
		if e.Writable() == nil {
			t.Fatal("Writable after a commit was given up: got no error, want one")
		}
		if err := e.Alive(); err != nil {
			t.Fatalf("Alive in an outage: got %v, want no error", err)
		}
		server.Start()
		testkit.Await(t, "the engine is writable again", func() bool { return e.Writable() == nil })
		storeSample(t, e, 2*round+2)
	}
	// The first sample of a round may have been stored without acknowledgement.
	for last := signal.UnixMilli(0); last < 4; {
		seq, samples := next(t, part)
		for _, x := range samples {
			if x.Time <= last || x.Time > last+2 {
				t.Fatalf("the sample: got that of %d, want %d or %d", x.Time, last+1, last+2)
			}
			last = x.Time
		}
		save(t, part, seq)
	}
}

// The others store on, but the engine does not call itself writable.
func TestOneStreamOfTelemetryLost(t *testing.T) {
	t.Parallel()
	e := open(t, split(Config{Patience: store.Patience{Store: time.Second}, Timeouts: impatient}))
	testkit.NoError(t, e.js.DeleteStream(t.Context(), telemetryName(1)))
	if err := e.Append(t.Context(), []vehicle.Sample{sample("car", 1)}); err == nil {
		t.Fatal("Append without its stream: got no error, want one")
	}
	storeSampleOf(t, e, "carA", 1)
	if err := e.Writable(); err == nil || !strings.Contains(err.Error(), telemetryName(1)) {
		t.Errorf("got %v, want an error that names the stream", err)
	}
	_, err := ensureStreams(t.Context(), e.js, e.config)
	testkit.NoError(t, err)
	testkit.Await(t, "the engine is writable again", func() bool { return e.Writable() == nil })
	storeSample(t, e, 2)
}

func TestReplacedStream(t *testing.T) {
	t.Parallel()
	e := open(t, Config{Timeouts: impatient})
	ctx := testkit.Context(t)
	testkit.Await(t, "the feed has brought a heartbeat", func() bool {
		// It then names one of the other feeds, which do not run.
		_, err := e.FeedAge()
		return err != nil && !strings.Contains(err.Error(), codec.States)
	})
	_, old := stream(t, e.js, codec.States)
	testkit.NoError(t, e.js.DeleteStream(ctx, codec.States))
	_, err := e.js.CreateStream(ctx, old.Config)
	testkit.NoError(t, err)
	select {
	case err := <-e.Failed():
		if !strings.Contains(err.Error(), "replaced") {
			t.Fatalf("the failure: got %v, want one of a replaced stream", err)
		}
	case <-ctx.Done():
		t.Fatal("the failure: got none until the deadline, want one")
	}
	if err := e.Writable(); err == nil {
		t.Error("Writable of an engine that failed: got no error, want one")
	}
}

func TestForgottenConsumers(t *testing.T) {
	t.Parallel()
	e := open(t, split(Config{Timeouts: impatient}))
	ctx := testkit.Context(t)
	part := take(t, e, 1)
	for at := int64(1); at <= 4; at++ {
		// In the first round it has delivered nothing yet, and the client library restarts at the
		// beginning of the stream.
		next := make(chan store.Group, 1)
		go func() {
			g, err := part.Next(ctx)
			if err != nil {
				t.Errorf("Next: got %v, want no error", err)
			}
			next <- g
		}()
		testkit.Await(t, "a consumer was forgotten", func() bool { return forgetConsumers(ctx, e, e.TelemetryStream(1)) > 0 })
		storeSample(t, e, at)
		g := <-next
		if len(g.Samples) != 1 || int64(g.Samples[0].Time) != at {
			t.Fatalf("got %+v, want the sample of %d", g, at)
		}
		save(t, part, g.Seq)
		if at == 2 {
			part.Close()
			part = take(t, e, 1)
		}
	}
	if !e.Folding()[1] {
		t.Error("Folding of partition 1: got false, want true")
	}
}

// A commit whose response is lost is stored only once.
func TestLostAnswer(t *testing.T) {
	testkit.Slow(t, "it takes a real engine through seconds of work")
	t.Parallel()
	url := clustertest.Account(t)
	wire := newWire(t, url)
	e := open(t, split(Config{URLs: wire.url, Timeouts: impatient}))
	ctx := testkit.Context(t)
	js := clustertest.JetStream(t, url)
	commits := func() uint64 {
		_, info := stream(t, js, e.TelemetryStream(1))
		return info.State.Msgs
	}
	part := take(t, e, 1)
	for round := range uint64(2) {
		wire.deaf.Store(true)
		stored := make(chan error, 1)
		go func() { stored <- e.Append(ctx, []vehicle.Sample{sample("car", int64(round+1))}) }()
		testkit.Await(t, "the server has stored the commit", func() bool { return commits() == round+1 })
		select {
		case err := <-stored:
			t.Fatalf("Append without an answer: got its end with %v, want it to wait", err)
		default:
		}
		wire.deaf.Store(false)
		wire.cut()
		testkit.NoError(t, <-stored)
		if n := commits(); n != round+1 {
			t.Fatalf("%d commits are stored; want %d", n, round+1)
		}
		// The same for a piece of a checkpoint.
		seq, _ := next(t, part)
		c := store.Checkpoint{Number: seq, First: seq, Seq: seq}
		folded := make(chan error, 1)
		go func() {
			_, err := part.Save(ctx, c, func(yield func(store.Piece) bool) {
				wire.deaf.Store(true)
				yield(store.Piece{Entries: []byte("states")})
			}, false)
			folded <- err
		}()
		testkit.Await(t, "the server has stored the piece", func() bool {
			s, _ := stream(t, js, codec.States)
			_, err := s.GetLastMsgForSubject(ctx, c.Subject(1, 0))
			return err == nil
		})
		wire.deaf.Store(false)
		wire.cut()
		if err := <-folded; err != nil {
			t.Fatalf("a checkpoint whose answer was lost: got %v, want no error", err)
		}
		if got := readCursor(t, e); got.Next != seq+1 {
			t.Errorf("the cursor is %+v, want one after %d", got, seq)
		}
	}
}

// A change must take effect once, whether the server has stored it or never received it.
func TestLostAnswerOfARecord(t *testing.T) {
	t.Parallel()
	url := clustertest.Account(t)
	wire := newWire(t, url)
	e := open(t, Config{URLs: wire.url, Timeouts: impatient})
	k, tables := storetest.RunKeeper(t, e, store.Config{})
	tok, _ := storetest.Issue(t, k, access.AllVehicles())
	ctx := testkit.Context(t)
	s, _ := stream(t, clustertest.JetStream(t, url), codec.Tokens)
	for _, c := range []struct {
		developer string
		lose      *atomic.Bool
		isLost    func(developer string) bool
	}{
		{"stored", &wire.deaf, func(developer string) bool {
			m, err := s.GetLastMsgForSubject(ctx, "token."+tok.Name)
			return err == nil && strings.Contains(string(m.Data), developer)
		}},
		{"never arrived", &wire.mute, func(developer string) bool { return wire.unheard.Count(developer) > 0 }},
	} {
		ran := 0
		done := make(chan error, 1)
		go func() {
			_, err := k.Update(ctx, access.TokenKind, tok.Name, func(t *access.Credential) error {
				ran++
				c.lose.Store(true)
				t.Developer = c.developer
				return nil
			})
			done <- err
		}()
		testkit.Await(t, "the answer is lost", func() bool { return c.isLost(c.developer) })
		c.lose.Store(false)
		wire.cut()
		if err := <-done; err != nil || ran != 1 {
			t.Fatalf("%s: got %d runs, error %v; want 1, no error", c.developer, ran, err)
		}
		if is, _ := tables.Tokens.Get(tok.Name); is.Developer != c.developer {
			t.Errorf("the table has %q, want %q", is.Developer, c.developer)
		}
	}
}

type wire struct {
	url  string
	deaf atomic.Bool
	mute atomic.Bool // drop what the client sends, by writing it to unheard

	unheard testkit.Buffer

	mu   sync.Mutex
	open map[net.Conn]bool // true for connections to clients
}

func newWire(t *testing.T, url string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	login, to, _ := strings.Cut(url, "@")
	w := &wire{url: login + "@" + l.Addr().String(), open: make(map[net.Conn]bool)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			w.mu.Lock()
			w.open[client], w.open[server] = true, false
			w.mu.Unlock()
			running.Go(func() { pass(server, client, 0, &w.mute, &w.unheard); server.Close() })
			// A client that reconnects needs INFO and the PONG of its login.
			running.Go(func() { pass(client, server, 2, &w.deaf, io.Discard); client.Close() })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.cut()
		running.Wait()
	})
	return w
}

// pass always copies the results of the first reads.
func pass(to io.Writer, from io.Reader, first int, drop *atomic.Bool, dropped io.Writer) {
	buf := make([]byte, 64<<10)
	for reads := 0; ; reads++ {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		dst := to
		if reads >= first && drop.Load() {
			dst = dropped
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *wire) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, client := range w.open {
		if client {
			_, _ = io.WriteString(c, text)
		}
	}
}

// cut closes all connections; the client then reconnects.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.Close()
		delete(w.open, c)
	}
}
