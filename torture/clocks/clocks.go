// Package clocks is the row in which a running service's clocks jump.
package clocks

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.org/carstate/bench/must"
	"example.org/carstate/internal/access"
	"example.org/carstate/internal/test/nodeprocess"
	"example.org/carstate/torture/row"
)

var Row = row.Row{
	Name: "clocks", Counts: "sequences of jumps", CI: 200,
	Run: run,
}

func run(ctx context.Context, a *row.Attempt) {
	t := &trial{a: a, rng: a.Rand(0), answers: make(map[int]int), queries: make(map[int]int)}
	t.start(ctx)
	defer func() { t.node.Kill() }()
	t.source = must.Get(t.node.AddSource(ctx, "gateway"))
	steady := must.Get(t.node.IssueToken(ctx, "Steady"))
	t.steady, t.steadyID = steady.AccessToken, steady.ID
	for n := range a.Count {
		must.Do(ctx.Err())
		if err := must.Caught(func() { t.sequence(ctx, n) }); err != nil {
			must.Fail("sequence %d, with the clock off by %s: %w", n+1, t.wall, err)
		}
	}
	t.jump(ctx, 0, 0)
	if err := must.Caught(func() { t.monotonic(ctx) }); err != nil {
		must.Fail("with the monotonic clock ahead by %s: %w", t.mono, err)
	}
	t.counted(ctx)
	a.Figure("jumps", float64(t.jumps), "")
	for _, status := range slices.Sorted(maps.Keys(t.queries)) {
		a.Figure(fmt.Sprintf("queries answered with %d", status), float64(t.queries[status]), "")
	}
	a.Figure("samples too far in the future, all to be refused", float64(t.early), "")
	a.Some("times that secrets that expire were valid", t.answers[http.StatusOK])
	a.Some("times that secrets that expire were refused", t.answers[http.StatusUnauthorized])
	must.Do(t.node.Stop())
}

type trial struct {
	a                *row.Attempt
	rng              *rand.Rand
	clock            shifted
	node             *nodeprocess.Node
	source           string
	steady, steadyID string
	calls, answered  int64

	wall, mono time.Duration // by which the node's clocks are ahead
	jumps      int
	answers    map[int]int
	queries    map[int]int
	early      int
}

func (t *trial) start(ctx context.Context) {
	t.clock, t.wall, t.mono = shifted{}, 0, 0
	t.node = must.Get(nodeprocess.StartReady(ctx, nodeprocess.Options{
		Binary: t.a.Binary, Dir: t.a.Dir + "/data", Begin: t.clock.start,
		Flags: []string{"--max-age", maxAge.String()},
	}, time.Minute))
}

func (t *trial) now() time.Time { return time.Now().Add(t.wall) }

func (t *trial) jump(ctx context.Context, wall, mono time.Duration) {
	t.wall, t.mono = wall.Truncate(time.Second), mono.Truncate(time.Second)
	t.jumps++
	t.clock.set(t.wall, t.mono)
	must.Do(t.node.AwaitReady(ctx, time.Minute))
}

// Seconds overflow 32 bits here, signed and unsigned; from 2157 on, times of Go have no monotonic
// reading.
var ends = []time.Time{
	time.Date(2038, 1, 19, 3, 14, 6, 0, time.UTC), time.Date(2038, 1, 19, 3, 14, 9, 0, time.UTC),
	time.Date(2106, 2, 7, 6, 28, 14, 0, time.UTC), time.Date(2106, 2, 7, 6, 28, 17, 0, time.UTC),
	time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC),
}

func (t *trial) next() time.Duration {
	either := time.Duration(1 - 2*t.rng.IntN(2))
	return []time.Duration{
		0,
		time.Until(ends[t.rng.IntN(len(ends))]),
		t.wall + either*time.Hour,
		t.wall + either*24*time.Hour,
		either * time.Hour,
		either * 24 * time.Hour,
		either * time.Duration(t.rng.Int64N(int64(72*time.Hour))),
		t.wall + either*time.Duration(2+t.rng.IntN(118))*time.Second,
	}[t.rng.IntN(8)]
}

func (t *trial) sequence(ctx context.Context, n int) {
	t.jump(ctx, 0, 0)
	s := t.newScene(ctx, n)
	const jumps = 8
	for i := range jumps {
		if i > 0 {
			t.jump(ctx, t.next(), 0)
		}
		for _, part := range []func(context.Context){s.ends, s.report, s.limited} {
			part(ctx)
			must.Do(ctx.Err())
		}
	}
}

func (t *trial) monotonic(ctx context.Context) {
	const once = "ONCE" // so that no later report restores it
	t.awaitWorking(ctx, once)
	for i, ahead := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		must.Do(ctx.Err())
		// Hourly tasks then run in 2038.
		t.wall, t.mono = time.Until(ends[0]).Truncate(time.Second), t.mono+ahead
		t.clock.set(t.wall, t.mono)
		t.jumps++
		// Operations that wait for an answer time out at once.
		t.awaitWorking(ctx, "DURING")
		t.jump(ctx, 0, t.mono)
		if err := t.known(ctx, once); err != nil {
			t.a.Wrong("a car that reported before the clock was ahead is unknown: %v", err)
		}
		t.newScene(ctx, -1-i).ends(ctx)
	}
}

func (t *trial) awaitWorking(ctx context.Context, vid string) {
	must.Do(nodeprocess.Until(ctx, 2*time.Minute, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := t.node.Ready(ctx); err != nil {
			return err
		}
		if taken, status, err := t.post(ctx, vid, t.now()); err != nil || !taken {
			return fmt.Errorf("telemetry is answered %d, %w", status, err)
		}
		return t.known(ctx, vid)
	}))
}

func (t *trial) known(ctx context.Context, vid string) error {
	a, err := t.ask(ctx, vid, t.steady)
	if err == nil && (a.HTTP != http.StatusOK || a.Reason != "") {
		err = fmt.Errorf("a query is answered %d, %q", a.HTTP, a.Reason)
	}
	return err
}

func (t *trial) counted(ctx context.Context) {
	t.jump(ctx, 0, t.mono)
	must.Do(t.node.Stop())
	t.start(ctx)
	c := must.Get(t.node.AdminClient())
	used := must.Get(c.Token(ctx, t.steadyID)).Usage.Calls
	if used < t.answered || used > t.calls {
		t.a.Wrong("of %d calls, %d of them answered, %d are counted after a restart", t.calls, t.answered, used)
	}
	t.a.Figure("calls that were answered", float64(t.answered), "")
	t.a.Figure("calls that are counted after a restart", float64(used), "")
}

const (
	maxAge = 10 * time.Minute
	ahead  = 30 * time.Second // how far in the future a sample may be
	window = time.Second      // of a token's rate, by the monotonic clock
	burst  = 20               // calls per window
	slack  = time.Minute      // how far in the future a verdict may be before it is stale
)

type scene struct {
	*trial
	expiring  []expiring
	limitedBy string
	vid       string
	heard     time.Time // newest accepted sample
}

type expiring struct {
	what, token string
	end         time.Time
}

func (t *trial) newScene(ctx context.Context, n int) *scene {
	s := &scene{trial: t, vid: fmt.Sprintf("CAR%dx%d", t.a.Seed%1e6, n+10)}
	c := must.Get(t.node.AdminClient())
	request := access.Credential{Developer: "Ada", Operations: access.AllOperations, Vehicles: access.AllVehicles()}
	old := must.Get(c.IssueToken(ctx, request))
	lasting := request
	lasting.Expires = t.now().Add(t.soon(72 * time.Hour)).Truncate(time.Millisecond)
	dies := must.Get(c.IssueToken(ctx, lasting))
	request.Rate = access.Rate{Calls: burst, Window: window}
	s.limitedBy = must.Get(c.IssueToken(ctx, request)).AccessToken
	rotated := must.Get(c.RotateToken(ctx, old.ID, t.soon(48*time.Hour).Truncate(time.Second)))
	s.expiring = []expiring{{"token", dies.AccessToken, lasting.Expires},
		{"replaced secret", old.AccessToken, rotated.EarlierUntil[0]}}
	return s
}

func (t *trial) soon(most time.Duration) time.Duration {
	return 10*time.Minute + time.Duration(t.rng.Int64N(int64(most)))
}

type answered struct {
	nodeprocess.Answer
	date          time.Time
	retry         time.Duration
	before, after time.Time
}

func (t *trial) ask(ctx context.Context, vid, token string) (a answered, err error) {
	// The node's time is known only to a second.
	a.before = t.now().Add(-time.Second)
	a.Answer, err = t.node.Ask(ctx, nodeprocess.DrivingPath, token, vid)
	a.after = t.now().Add(time.Second)
	if token == t.steady {
		if t.calls++; err == nil && a.HTTP == http.StatusOK {
			t.answered++
		}
	}
	if err != nil {
		return a, err
	}
	t.queries[a.HTTP]++
	a.date, _ = http.ParseTime(a.Header.Get("Date"))
	a.retry, _ = time.ParseDuration(a.Header.Get("Retry-After") + "s")
	if a.date.Before(a.before.Add(-time.Second)) || a.date.After(a.after) {
		t.wrong("Date is off by %s", a.date.Sub(a.before))
	}
	return a, nil
}

func (t *trial) wrong(format string, args ...any) {
	t.a.Wrong("the clock ahead by %s: %s", t.wall, fmt.Sprintf(format, args...))
}

func (t *trial) post(ctx context.Context, vid string, at time.Time) (taken bool, status int, err error) {
	status, text, err := t.node.Post(ctx, t.source, fmt.Sprintf(`{"vid":%q,"time":%d,"signals":{"Vehicle.Speed":50}}`, vid,
		at.UnixMilli()))
	return status == http.StatusAccepted && !strings.Contains(string(text), `"accepted":0`), status, err
}

func (s *scene) ends(ctx context.Context) {
	for _, x := range s.expiring {
		a := must.Get(s.ask(ctx, s.vid, x.token))
		if a.HTTP == http.StatusServiceUnavailable && s.mono > 0 {
			continue
		}
		s.answers[a.HTTP]++
		switch {
		case a.HTTP == http.StatusOK && !a.before.Before(x.end):
			s.wrong("a %s is valid %s after its end", x.what, a.before.Sub(x.end))
		case a.HTTP == http.StatusUnauthorized && a.after.Before(x.end):
			s.wrong("a %s is refused %s before its end", x.what, x.end.Sub(a.after))
		case a.HTTP != http.StatusOK && a.HTTP != http.StatusUnauthorized:
			s.wrong("a %s is answered %d", x.what, a.HTTP)
		}
	}
}

func (s *scene) report(ctx context.Context) {
	a := must.Get(s.ask(ctx, s.vid, s.steady))
	if why := s.honest(a); why != "" {
		s.wrong("%s", why)
	}
	// A sample replaces the last one if it is newer, or if that is more than slack in the future.
	// Near that limit, the clock advances, for a certain outcome.
	if off := s.heard.Sub(s.now()); off > slack-5*time.Second && off < slack+5*time.Second {
		s.jump(ctx, s.wall+10*time.Second, s.mono)
	}
	const far = ahead + 10*time.Second
	s.early++
	if taken, _ := must.Get2(s.post(ctx, s.vid, s.now().Add(far))); taken {
		s.wrong("a sample %s in the future is accepted", far)
	}
	at := s.now().Truncate(time.Millisecond)
	s.a.Offered(1)
	if taken, status := must.Get2(s.post(ctx, s.vid, at)); !taken {
		s.wrong("a sample of now is answered %d", status)
	} else {
		s.a.Acknowledged(1)
		if s.heard.Before(at) || s.heard.Sub(at) > slack {
			s.heard = at
		}
	}
	err := nodeprocess.Until(ctx, 30*time.Second, func(ctx context.Context) error {
		a, err := s.ask(ctx, s.vid, s.steady)
		want := s.heard.Truncate(time.Second)
		if want.After(a.date) {
			want = a.date // Last-Modified is never later than Date
		}
		if err == nil && (a.Reason != "" || !a.Modified.Equal(want)) {
			err = fmt.Errorf("answered %d with reason %q", a.HTTP, a.Reason)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.wrong("the sample of a car that reports now is not used: %v", err)
		s.heard = time.Time{}
		return
	}
	must.Do(err)
}

// There must be a verdict if the newest sample is at most maxAge old, and none if it is older, or
// more than slack in the future; in between, both are right.
func (s *scene) honest(a answered) string {
	fresh := a.HTTP == http.StatusOK && a.Reason == ""
	youngest, oldest := a.before.Sub(s.heard), a.after.Sub(s.heard)
	switch {
	case a.Modified.After(a.date):
		return "Last-Modified is after Date"
	case s.heard.IsZero():
		if fresh {
			return "a car is known that never reported"
		}
	case fresh && youngest > maxAge:
		return fmt.Sprintf("a verdict %s old is given as fresh", youngest)
	case fresh && oldest < -slack:
		return fmt.Sprintf("a verdict %s in the future is given as fresh", -oldest)
	case !fresh && youngest >= 0 && oldest <= maxAge:
		return fmt.Sprintf("a verdict %s old is not given: %d, %q", oldest, a.HTTP, a.Reason)
	case !fresh && a.Reason != "stale":
		return fmt.Sprintf("the reason for a sample %s ago is %q", oldest, a.Reason)
	case fresh && youngest >= 0 && !a.Modified.Equal(s.heard.Truncate(time.Second)):
		return "Last-Modified is not the time of the sample"
	}
	return ""
}

// A 429 may demand a wait of a window at most.
func (s *scene) limited(ctx context.Context) {
	const each = window / burst
	served, began := 0, time.Now()
	var last answered
	for ; served < 3*burst; served++ {
		if last = must.Get(s.ask(ctx, s.vid, s.limitedBy)); last.HTTP != http.StatusOK {
			break
		}
	}
	if most := burst + 1 + int(time.Since(began)/each); served > most {
		s.wrong("%d calls were served at once, of %d", served, most)
	}
	switch {
	case last.HTTP != http.StatusTooManyRequests:
		return
	case last.retry <= 0 || last.retry > window:
		s.wrong("a token over its rate must wait %s", last.retry)
		return
	}
	time.Sleep(2 * each)
	if a := must.Get(s.ask(ctx, s.vid, s.limitedBy)); a.HTTP != http.StatusOK {
		s.wrong("a token that waited as long as required is answered %d", a.HTTP)
	}
}

// A program gets the time from the kernel's vDSO, a page of code in every process. In that of a
// shifted process, clock_gettime is replaced at its start by one that adds offsets.
type shifted struct {
	pid     int
	offsets uint64 // address of two int64, in seconds: for CLOCK_REALTIME and CLOCK_MONOTONIC
}

// code is clock_gettime(edi, rsi) for amd64. The offsets follow at byte 32.
var code = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x83, 0xff, 0x01, // cmp edi, 1
	0x77, 0x10, // ja to the ret: another clock
	0x48, 0x8d, 0x0d, 0x0d, 0x00, 0x00, 0x00, // lea rcx, [rip+13]: the offsets
	0x89, 0xff, // mov edi, edi
	0x48, 0x8b, 0x0c, 0xf9, // mov rcx, [rcx+8*rdi]
	0x48, 0x01, 0x0e, // add [rsi], rcx: the seconds
	0xc3,             // ret
	0x90, 0x90, 0x90, // up to 32
}

const wholeCode = 48

func (s *shifted) start(cmd *exec.Cmd) error {
	if runtime.GOARCH != "amd64" {
		return errors.New("the row clocks sets a process's clocks through the vDSO of amd64: run it there")
	}
	runtime.LockOSThread() // ptrace is bound to a thread
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Ptrace = true // it stops before its first instruction
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the row clocks must be allowed to trace the process that it starts: %w", err)
	}
	s.pid = cmd.Process.Pid
	err := must.Caught(s.patch)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	return errors.Join(err, syscall.PtraceDetach(s.pid))
}

func (s *shifted) patch() {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.pid, &status, 0, nil); err != nil || !status.Stopped() {
		must.Fail("the process did not stop at its beginning: %v, %w", status, err)
	}
	var begin, end uint64
	for line := range strings.Lines(string(must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.pid))))) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			must.Get(fmt.Sscanf(line, "%x-%x", &begin, &end))
		}
	}
	mem := must.Get(os.OpenFile(fmt.Sprintf("/proc/%d/mem", s.pid), os.O_RDWR, 0))
	defer mem.Close()
	image := make([]byte, end-begin)
	if _, err := mem.ReadAt(image, int64(begin)); err != nil {
		must.Fail("the vDSO cannot be read: %w", err)
	}
	at := clockGettime(image)
	text := append(bytes.Clone(code), make([]byte, wholeCode-len(code))...)
	if _, err := mem.WriteAt(text, int64(begin+at)); err != nil {
		must.Fail("the vDSO cannot be written: %w", err)
	}
	s.offsets = begin + at + uint64(len(code))
}

func clockGettime(image []byte) uint64 {
	f := must.Get(elf.NewFile(bytes.NewReader(image)))
	symbols := must.Get(f.DynamicSymbols())
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 {
		must.Fail("the vDSO has no clock_gettime")
	}
	s := symbols[i]
	if s.Size < wholeCode || s.Value%8 != 0 || s.Value+wholeCode > uint64(len(image)) {
		must.Fail("clock_gettime has %d bytes in this kernel's vDSO, which is too few", s.Size)
	}
	return s.Value
}

func (s *shifted) set(wall, monotonic time.Duration) {
	mem := must.Get(os.OpenFile(fmt.Sprintf("/proc/%d/mem", s.pid), os.O_WRONLY, 0))
	defer mem.Close()
	for i, d := range []time.Duration{wall, monotonic} {
		word := binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second))
		must.Get(mem.WriteAt(word, int64(s.offsets)+int64(8*i)))
	}
}
