package hostile

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"carstate/internal/access"
	"carstate/internal/fleet"
	"carstate/internal/query"
	"carstate/internal/vehicle"
	"carstate/torture/row"
)

// stand is a query listener in this process, and what is agreed with it.
type stand struct {
	*contract
	address string
	limited [talkers][]*token
	rest    []*token
}

func newStand(t *testing.T) *stand {
	t.Helper()
	now := time.Now()
	s := &stand{contract: &contract{tokens: make(map[string]*token), cars: make(map[string]car), documents: make(map[string]document)}}
	tokens := new(access.Tokens)
	issue := func(r access.TokenRequest, agreed token) *token {
		r.Developer = "Ada"
		agreed.driving, agreed.throttle, agreed.calls = r.Operations.Has(access.CarDrivingState), r.Operations.Has(access.ThrottleSystem), int(r.Rate.Calls)
		made, secret, err := access.Issue(r, now)
		if err != nil {
			t.Fatal(err)
		}
		if agreed.dead {
			made.Revoked = now
		}
		tokens.Put(made)
		agreed.secret = secret
		s.tokens[secret] = &agreed
		return &agreed
	}
	all := access.AllVehicles()
	s.rest = []*token{
		issue(access.TokenRequest{Operations: access.AllOperations, Vehicles: all}, token{}),
		issue(access.TokenRequest{Operations: access.CarDrivingState, Vehicles: all}, token{}),
		issue(access.TokenRequest{Operations: access.ThrottleSystem, Vehicles: all}, token{}),
		issue(access.TokenRequest{Operations: access.AllOperations, Vehicles: access.VehicleSet("CarNormal")}, token{only: map[string]bool{"CarNormal": true}}),
		issue(access.TokenRequest{Operations: access.AllOperations, Vehicles: all}, token{dead: true}),
	}
	for i := range s.limited {
		for range 3 {
			r := access.TokenRequest{Operations: access.AllOperations, Vehicles: all, Rate: access.Rate{Calls: limitedCalls, Window: time.Hour}}
			s.limited[i] = append(s.limited[i], issue(r, token{}))
		}
	}

	table := fleet.New()
	at := vehicle.At(now.Add(-2 * time.Second))
	put := func(id vehicle.ID, d vehicle.DrivingVerdict, th vehicle.ThrottleVerdict, truth car) {
		d.Time = at
		if truth.throttle != 0 {
			th.Time = at
		}
		table.Put(id, fleet.Answer{Driving: d, Throttle: th})
		truth.read = at.Time()
		s.cars[string(id)] = truth
	}
	put("CarNormal", vehicle.DrivingVerdict{State: vehicle.NormalDriving}, vehicle.ThrottleVerdict{System: vehicle.ThrottleNormal}, car{driving: '1', throttle: '1'})
	put("CarJam", vehicle.DrivingVerdict{State: vehicle.TrafficJam}, vehicle.ThrottleVerdict{System: vehicle.ThrottleAnomaly}, car{driving: '3', throttle: '0'})
	put("CarParked", vehicle.DrivingVerdict{NotDriving: true}, vehicle.ThrottleVerdict{}, car{notDriving: true})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := query.New(query.Config{Tokens: tokens, Fleet: table})
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.address = l.Addr().String()
	for _, path := range []string{"/", "/openapi.json", "/reference/"} {
		d, err := readDocument("http://" + s.address + path)
		if err != nil {
			t.Fatal(err)
		}
		s.documents[path] = d
	}
	return s
}

func (s *stand) writer(worker int, rng *rand.Rand) *writer {
	return &writer{
		Rand: rng, name: string(rune('a' + worker)), tokens: append(append([]*token{}, s.rest...), s.limited[worker]...),
		strange: []string{"", "x", "cst_", "css_000000000000000000000000000000000000", "Bearer x", "cst_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
		cars:    []string{"CarNormal", "CarJam", "CarParked"},
	}
}

func attempt(t *testing.T) *row.Attempt {
	return &row.Attempt{Seed: 1, Logf: t.Logf, Stop: func() {}}
}

// The listener and the model agree, whatever is sent.
func TestRequests(t *testing.T) {
	s := newStand(t)
	a := attempt(t)
	if err := requests(t.Context(), a, s.contract, s.writer, s.address, 4000); err != nil {
		t.Error(err)
	}
	if o := a.Outcome(); !o.Passed() || o.Acknowledged == 0 {
		t.Errorf("%+v", o)
	}
}

// The model sees answers that are wrong.
func TestCompare(t *testing.T) {
	s := newStand(t)
	good := "GET " + drivingPath + "?access_token=" + s.rest[0].secret + "&vid=CarJam HTTP/1.1\r\nHost: a\r\n\r\n"
	other := strings.Replace(good, "CarJam", "CarNormal", 1)
	nothing := "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
	body := strings.Replace(good, "Host: a", "Host: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked", 1)
	head := strings.Replace(good, "GET", "HEAD", 1)
	ask := func(stream string) string {
		t.Helper()
		x := talk(t.Context(), "127.0.0.1", s.address, []byte(stream), rand.New(rand.NewPCG(1, 1)))
		if x.err != nil || x.reset {
			t.Fatalf("%+v", x)
		}
		return string(x.got)
	}
	for _, test := range []struct{ title, sent, got, says string }{
		{"as it should be", good + other, ask(good + other), ""},
		{"HEAD", head, ask(head), ""},
		{"refused", body, ask(body), ""},
		{"other order", good + other, ask(other + good), "another record"},
		{"one answer too few", good + other, ask(good), "no answer came"},
		{"one too many", good, ask(good + good), "nobody asked"},
		{"what was smuggled", body + good, ask(body) + ask(good), "after the last answer"},
		{"not refused", body, ask(good), "is 200"},
		{"HEAD with a body", head, ask(good), "nobody asked"},
		{"another status", good, strings.Replace(ask(good), "200 OK", "500 Oops", 1), "is 500"},
		{"a message that repeats the path", nothing, strings.Replace(ask(nothing), "the paths", "no <b>\\\"", 1), ""},
		{"a header more", good, strings.Replace(ask(good), "Date:", "X: y\r\nDate:", 1), "contract does not"},
		{"may be kept", good, strings.Replace(ask(good), "private, no-store", "public, max-age=9", 1), "cache"},
		{"another verdict", good, strings.Replace(ask(good), `"3"`, `"1"`, 1), "another record"},
		{"breaks off", good, ask(good)[:100], "breaks off"},
		{"the end of the connection unsaid", body, strings.Replace(ask(body), "Connection: close\r\n", "", 1), "does not say"},
	} {
		by := &caller{budgets: make(map[*token]*budget)}
		wrong, _ := s.compare([]byte(test.sent), exchange{got: []byte(test.got)}, by, func(*answer) string { return "" })
		if test.says == "" && wrong != "" && !strings.Contains(test.title, "repeats") || test.says != "" && !strings.Contains(wrong, test.says) {
			t.Errorf("%s: %q, want %q", test.title, wrong, test.says)
		}
	}
}

// What the model makes of single requests, from the contract's text.
func TestNext(t *testing.T) {
	s := newStand(t)
	line := "GET " + drivingPath + "?vid=CarJam&access_token=" + s.rest[0].secret
	for _, test := range []struct {
		stream   string
		statuses []int
	}{
		{line + " HTTP/1.1\r\nHost: a\r\n\r\n", []int{200}},
		{"\r\n\r\n" + line + " HTTP/1.0\r\n\r\n", []int{200}},
		{line + " HTTP/1.1\r\n\r\n", []int{400}},
		{line + "&vid=A HTTP/1.1\r\nHost: a\r\n\r\n", []int{400}},
		{line + "%4 HTTP/1.1\r\nHost: a\r\n\r\n", []int{400}},
		{line + " HTTP/1.1\r\nHost: a\r\ntransfer-ENCODING: x\r\n\r\n", []int{400}},
		{line + " HTTP/1.1\nHost: a\n\n", []int{400}},
		{line + strings.Repeat("a", maxLine) + " HTTP/1.1\r\nHost: a\r\n\r\n", []int{414}},
		{line + " HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", maxHead) + "\r\n\r\n", []int{431}},
		{line + " HTTP/1.1\r\nHost: a\r\n", []int{400}},
		{"POST" + line[3:] + " HTTP/1.1\r\nHost: a\r\n\r\n", []int{405}},
		{"POST /x HTTP/1.1\r\nHost: a\r\n\r\n", []int{404}},
		{strings.Replace(line, "vid=", "vid=-", 1) + " HTTP/1.1\r\nHost: a\r\n\r\n", []int{400}},
		{line + "x HTTP/1.1\r\nHost: a\r\n\r\n", []int{401}},
		{strings.Replace(line, "access_token", "token", 1) + " HTTP/1.1\r\nHost: a\r\n\r\n", []int{401}},
		{"GET me:you HTTP/1.1\r\nHost: a\r\n\r\n", []int{404, 400}},
	} {
		e := s.next([]byte(test.stream), &caller{budgets: make(map[*token]*budget)})
		var got []int
		for _, o := range e.outcomes {
			got = append(got, o.status)
		}
		if len(got) != len(test.statuses) {
			t.Errorf("%q: %v", test.stream, got)
			continue
		}
		for i := range got {
			if got[i] != test.statuses[i] {
				t.Errorf("%q: %v", test.stream, got)
			}
		}
	}
	if s.next([]byte("\r\n"), nil) != nil {
		t.Error("an empty line asks for something")
	}
}

// What is written is repeatable, and reaches every kind of request.
func TestWriter(t *testing.T) {
	s := newStand(t)
	write := func() (all []byte) {
		w := s.writer(0, rand.New(rand.NewPCG(7, 7)))
		for range 200 {
			stream, _ := w.conversation()
			all = append(all, stream...)
		}
		return all
	}
	first := write()
	if !bytes.Equal(first, write()) {
		t.Error("one seed, two texts")
	}
	for _, part := range []string{"Transfer-Encoding", "Content-Length: ", "PRI * HTTP/2.0", "Expect", "\x00", "HEAD ", "HTTP/1.0"} {
		if !bytes.Contains(first, []byte(part)) {
			t.Errorf("%q is never written", part)
		}
	}
}
