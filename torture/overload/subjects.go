package overload

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"carstate/bench/must"
	"carstate/internal/nodeprocess"
)

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
	if status, text := must.Get2(n.Post(ctx, key, string(lines))); status != http.StatusAccepted {
		must.Fail("telemetry was not accepted: %d %s", status, text)
	}
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
