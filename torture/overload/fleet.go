package overload

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
	"carstate/torture/load"
	"carstate/torture/row"
)

// fleet holds the cars whose telemetry overloads a node, and a journal of what was acknowledged.
// The number of a request determines its samples. Each car sends one sample per second of its own
// time. After the number of samples in the constant drives, a new car replaces it, so that later
// samples of the same car cannot hide a lost sample for long.
type fleet struct {
	load  *load.Load // keeps the journal and compares a node with it
	begin int64      // when each car's time begins, Unix s
	taken atomic.Int64
}

// drives is the number of samples that a car sends before another car replaces it.
const drives = 1000

func newFleet(a *row.Attempt) *fleet {
	return &fleet{load: load.New(a), begin: time.Now().Add(-time.Hour).Unix()}
}

// sample returns the car and the time of the sample with the given number. The number of cars at a
// time is constant, and the cars are replaced one after the other.
func (f *fleet) sample(number int) (vid string, at int64) {
	place, turn := number%cars, number/cars
	turn += place * drives / cars
	return fmt.Sprintf("Car%dx%d", place, turn/drives), f.begin + int64(turn%drives)
}

// body returns the telemetry of a request and records it as offered.
func (f *fleet) body(request int) (b []byte) {
	for i := range batch {
		vid, at := f.sample(request*batch + i)
		f.load.NoteOffered(vid, at)
		b = line(b, vid, at*1000)
	}
	return b
}

// acknowledged records that a request was acknowledged.
func (f *fleet) acknowledged(request int) {
	f.taken.Add(1)
	for i := range batch {
		f.load.NoteAcknowledged(f.sample(request*batch + i))
	}
}

// prepare prepares users that send the telemetry of this fleet.
func (f *fleet) prepare(ctx context.Context, n *nodeprocess.Node) *users {
	f.load.Prepare(ctx, n)
	return telemetry(ctx, n, f)
}

// hold compares a node with everything that was acknowledged.
func (f *fleet) hold(ctx context.Context, n *node) {
	vids := f.load.Vehicles()
	n.a.Figure(n.what+": cars whose newest acknowledged sample was looked for", float64(len(vids)), "")
	f.load.HoldVehicles(ctx, n.process, vids)
}

// kills is the number of kills. Several are necessary, because not every kill happens while there
// are samples that were acknowledged but are not stored yet.
const kills = 10

// amid is how long the node is under load before each kill.
const amid = time.Second

// cut kills a node that receives as much telemetry as it can handle, and restarts
// it. Then it checks that the node has everything that it had acknowledged. It does
// so as many times as the constant kills says.
func (f *fleet) cut(ctx context.Context, n *node) {
	users := closedUsers[len(closedUsers)-1]
	for range kills {
		counts := false
		n.users.counting = func() {
			if counts {
				n.process.Kill()
			}
			counts = true
		}
		n.check(n.what+": ", n.users.closedLoop(ctx, users, amid, amid/10))
		must.Do(ctx.Err())
		process := must.Get(f.load.Start(ctx, n.options))
		n.process, n.users.addr = process, process.Address(nodeprocess.Ingest)
		f.load.HoldVehicles(ctx, process, f.load.Vehicles())
		n.confine()
	}
	n.a.Figure(n.what+": kills", kills, "")
	n.a.Figure(n.what+": requests of telemetry that were acknowledged", float64(f.taken.Load()), "")
	n.a.Figure(n.what+": cars whose newest acknowledged sample was looked for each time", float64(len(f.load.Vehicles())),
		"")
}

// cars is the number of vehicles.
const cars = 100

// line appends a line of NDJSON with one sample.
func line(b []byte, vid string, unixMilli int64) []byte {
	return fmt.Appendf(b, `{"vid":"%s","time":%d,"signals":{"Vehicle.Speed":70,"Vehicle.OBD.EngineSpeed":2000}}`+"\n", vid,
		unixMilli)
}

// queries prepares users of the query listener.
func queries(ctx context.Context, n *nodeprocess.Node) *users {
	key := must.Get(n.AddSource(ctx, "gateway"))
	token := must.Get(n.IssueToken(ctx, "Ada"))
	var lines []byte
	for i := range cars {
		lines = line(lines, "Car"+strconv.Itoa(i), time.Now().UnixMilli())
	}
	row.Feed(ctx, n, key, string(lines))
	must.Do(n.AwaitAnswer(ctx, time.Minute, token.AccessToken, "Car"+strconv.Itoa(cars-1), time.Time{}))
	return &users{
		addr: n.Address(nodeprocess.Query),
		request: func(b []byte, i int) []byte {
			b = append(b, "GET "+nodeprocess.DrivingPath+"?access_token="...)
			b = append(b, token.AccessToken...)
			b = strconv.AppendInt(append(b, "&vid=Car"...), int64(i%cars), 10)
			return append(b, " HTTP/1.1\r\nHost: localhost\r\n\r\n"...)
		},
		good: func(status int, body []byte) bool {
			return status == http.StatusOK && bytes.HasSuffix(body, []byte(`"status":1,"vehicle_runing_state":"1"}}`))
		},
	}
}

// batch is the number of samples in a request of telemetry.
const batch = 5

// telemetry prepares users of the ingest listener, which send the telemetry of a fleet.
func telemetry(ctx context.Context, n *nodeprocess.Node, f *fleet) *users {
	key := must.Get(n.AddSource(ctx, "gateway"))
	head := strings.Join([]string{"POST /v1/telemetry HTTP/1.1", "Host: localhost", "Content-Type: application/x-ndjson",
		"Authorization: Bearer " + key, "Content-Length: "}, "\r\n")
	return &users{
		addr: n.Address(nodeprocess.Ingest),
		request: func(b []byte, i int) []byte {
			body := f.body(i)
			b = strconv.AppendInt(append(b, head...), int64(len(body)), 10)
			return append(append(b, "\r\n\r\n"...), body...)
		},
		good: func(status int, body []byte) bool {
			return status == http.StatusAccepted && bytes.HasPrefix(body, []byte(`{"accepted":`+strconv.Itoa(batch)+`,`))
		},
		acknowledged: f.acknowledged,
	}
}
