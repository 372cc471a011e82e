package admin_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/vehicle"
)

type change struct {
	method string // of the store
	do     func(context.Context) error
}

func changes(t *testing.T, s *service) map[string]change {
	tok, src := s.issue(t).ID, s.add(t, "old").Name
	testkit.NoError(t, second(s.Forget(t.Context(), "F")))
	type c = context.Context
	return map[string]change{
		"token.issue": {"Create token", func(ctx c) error {
			return second(s.IssueToken(ctx, access.Credential{Developer: "Ada", Operations: access.AllOperations,
				Vehicles: access.AllVehicles()}))
		}},
		"token.grant": {"Update token", func(ctx c) error {
			return second(s.GrantToken(ctx, tok, []vehicle.ID{"C"}, nil))
		}},
		"token.revoke":  {"Update token", func(ctx c) error { return second(s.RevokeToken(ctx, tok)) }},
		"token.rotate":  {"Update token", func(ctx c) error { return second(s.RotateToken(ctx, tok, time.Hour)) }},
		"source.rotate": {"Update source", func(ctx c) error { return second(s.RotateSource(ctx, src, time.Hour)) }},
		"source.remove": {"Update source", func(ctx c) error { return second(s.RemoveSource(ctx, src)) }},
		"source.add": {"Create source", func(ctx c) error {
			return second(s.AddSource(ctx, access.Credential{Name: "new", Vehicles: access.AllVehicles()}))
		}},
		"operator.add":   {"Create operator", func(ctx c) error { return second(s.AddOperator(ctx, "ada", false)) }},
		"vehicle.forget": {"Forget", func(ctx c) error { return second(s.Forget(ctx, "V1")) }},
		"vehicle.allow":  {"Allow", func(ctx c) error { return second(s.Allow(ctx, "F")) }},
		"backup.restore": {"Restore", func(ctx c) error {
			return second(s.Restore(ctx, strings.NewReader("a backup"), access.RestoreOptions{}, func(int, int) {}))
		}},
	}
}

func TestAudit_OfEachOperation(t *testing.T) {
	for action := range changes(t, start(t)) {
		t.Run(action, func(t *testing.T) {
			s := start(t)
			change := changes(t, s)[action]
			s.store.Did()
			fails := func(method, says string) {
				t.Helper()
				before := s.log.Count("disk full")
				s.store.Fail(method, errDisk)
				err := change.do(t.Context())
				s.store.Fail(method, nil)
				refused(t, action, err, 503, says)
				if strings.Contains(err.Error(), "disk full") || s.log.Count("disk full") == before {
					t.Errorf("%s fails: got %v, want an error without its cause, which is in the log", method, err)
				}
			}
			fails("Audit intended", "nothing was done")
			if did := s.store.Did(); !slices.Equal(did, []string{"Audit intended"}) {
				t.Errorf("without an audit: got the calls %v, want the audit only", did)
			}
			fails(change.method, "")
			if e := newest(t, s.Client, 2); e[0].Outcome != "failed" || e[1].Outcome != "intended" ||
				e[0].Object != e[1].Object || e[0].Action != action {
				t.Errorf("got the events %+v of a failed operation, want an intended and a failed %s", e, action)
			}
			s.store.Did()
			testkit.NoError(t, change.do(t.Context()))
			if did := s.store.Did(); !slices.Equal(did, []string{"Audit intended", change.method}) {
				t.Errorf("got the calls %v, want the audit before %s", did, change.method)
			}
			if e := newest(t, s.Client, 1)[0]; e.Action != action || e.Object == "" {
				t.Errorf("got the event %+v, want %s of an object", e, action)
			}
		})
	}
}

func TestFailureThatCannotBeAudited(t *testing.T) {
	s := start(t)
	s.store.Fail("Create token", errDisk)
	s.store.Fail("Audit failed", errDisk)
	got := s.want(t, "POST", "/v1/tokens", `{"developer":"Ada","vehicles":"all"}`, 503, "")
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("a failure without an audit: got Retry-After %q, want 1", got.header.Get("Retry-After"))
	}
	if !strings.Contains(s.log.String(), "cannot write the failure of an operation to the audit") {
		t.Errorf("the log: got %s, want that the failure is not in the audit", s.log)
	}
}

// The store logs damage once, so the call must not.
func TestAudit_Damaged(t *testing.T) {
	s := start(t)
	s.store.Fail("AuditPage", fmt.Errorf("block 7: %w", access.ErrDamaged))
	s.want(t, "GET", "/v1/audit", "", 503, "is damaged")
	if strings.Contains(s.log.String(), "block 7") {
		t.Errorf("got the log %s, want no line", s.log)
	}
}

func TestOperation_CompletesAfterTheClientDisconnects(t *testing.T) {
	s := start(t)
	tok := s.issue(t)
	ctx, hangUp := context.WithCancel(t.Context())
	gone, finished := make(chan struct{}), make(chan error, 1)
	s.store.Before = func(ctx context.Context, method string) {
		if method == "Update token" {
			hangUp()
			<-gone
			finished <- ctx.Err()
		}
	}
	if _, err := s.RevokeToken(ctx, tok.ID); !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller who hangs up: got %v, want %v", err, context.Canceled)
	}
	close(gone)
	if err := <-finished; err != nil {
		t.Errorf("the operation whose caller hung up: got %v, want no error", err)
	}
}

func TestAuditNamesVehicles(t *testing.T) {
	s := start(t)
	cars := func(n int) (all []vehicle.ID) {
		for i := range n {
			all = append(all, vehicle.ID(fmt.Sprintf("Car%03d", i)))
		}
		return all
	}
	named := func(ids ...vehicle.ID) string {
		var names []string
		for _, id := range ids {
			names = append(names, s.store.Forgotten.Hash(id).Short())
		}
		return strings.Join(names, ", ")
	}
	twenty := named(cars(20)...)
	newest := func() string { return newest(t, s.Client, 1)[0].Detail }
	for _, tt := range []struct {
		vehicles access.Vehicles
		want     string
	}{
		{access.AllVehicles(), "all"},
		{access.VehicleSet("B", "A"), named("A", "B")},
		{access.VehicleSet(cars(20)...), twenty},
		{access.VehicleSet(cars(21)...), twenty + ", and 1 more"},
		{access.VehicleSet(cars(1020)...), twenty + ", and 1000 more"},
	} {
		tok := s.issueAs(t, access.Credential{Operations: access.ThrottleSystem, Vehicles: tt.vehicles})
		if got, want := newest(), `developer "Ada"; operations throttle_system; vehicles `+tt.want+"; expires "+
			"never; rate no limit"; got != want {
			t.Errorf("issue: %q, want %q", got, want)
		}
		if tt.vehicles.All() {
			continue
		}
		for _, g := range []struct {
			add, remove []vehicle.ID
			want        string
		}{
			{[]vehicle.ID{"D", "C"}, nil, "add " + named("D", "C") + "; remove none"},
			{[]vehicle.ID{"E", cars(1)[0]}, []vehicle.ID{"C"}, "add " + named("E", cars(1)[0]) + "; remove " + named("C")},
			{nil, cars(22), "add none; remove " + twenty + ", and 2 more"},
		} {
			testkit.NoError(t, second(s.GrantToken(t.Context(), tok.ID, g.add, g.remove)))
			if got := newest(); got != g.want {
				t.Errorf("grant: %q, want %q", got, g.want)
			}
		}
	}
}

func TestAuditOfAVehicle_CountsWhatItDoesNotList(t *testing.T) {
	s := start(t)
	many := make([]vehicle.ID, 21)
	for i := range many {
		many[i] = vehicle.ID(fmt.Sprintf("Car%03d", i))
	}
	for _, v := range [][]vehicle.ID{many, many[:20], {"A"}} {
		s.issueAs(t, access.Credential{Developer: "Ada, and 7 more", Vehicles: access.VehicleSet(v...)})
	}
	for query, want := range map[string][2]int{ // found, may concern the vehicle
		"vid=Car000": {2, 0}, "vid=Car020": {0, 1}, "vid=A": {1, 1}, "vid=A&limit=1": {1, 0}, "": {3, 0},
		"vid=Car020&action=source": {0, 0}, "vid=Car020&until=2026-11-19": {0, 0},
		"vehicle=" + s.store.Forgotten.Hash("Car020").Short(): {0, 1},
	} {
		asked, err := url.ParseQuery(query)
		testkit.NoError(t, err)
		page, err := s.SearchAudit(t.Context(), asked)
		if got := [2]int{len(page.Events), page.MayConcern}; err != nil || got != want {
			t.Errorf("%q: got %d events, and %d that may concern it (%v); want %d", query, got[0], got[1], err, want)
		}
	}
}

func TestAuditQuotesNames(t *testing.T) {
	s := start(t)
	const forged = `Ada"; operations throttle_system; vehicles 3a8f666f10ffcec5 --`
	expires := noon.Add(90 * 24 * time.Hour)
	s.issueAs(t, access.Credential{Developer: forged, Vehicles: access.AllVehicles(), Expires: expires,
		Rate: access.Rate{Calls: 10, Window: time.Second}})
	testkit.NoError(t, second(s.AddSource(t.Context(), access.Credential{Name: "car-7",
		Vehicles: access.VehicleSet("A"), Expires: expires})))
	events := newest(t, s.Client, 2)
	if got, want := events[0].Detail, "vehicles "+s.store.Forgotten.Hash("A").Short()+"; expires "+
		"2027-02-18T12:00:00Z; rate 10/s a vehicle, 36000 at once"; got != want {
		t.Errorf("a source: %s, want %s", got, want)
	}
	const want = `developer "Ada\"; operations throttle_system; vehicles 3a8f666f10ffcec5 --"; operations ` +
		`car_driving_state, throttle_system; vehicles all; expires 2027-02-18T12:00:00Z; rate 10/s`
	if got := events[1].Detail; got != want {
		t.Errorf("a token: %s, want %s", got, want)
	}
}

func TestAuditIsSearchedThrough(t *testing.T) {
	s := start(t)
	for i := range 2500 {
		e := access.Event{Time: noon.Add(time.Duration(i) * time.Second), Actor: "ada", Action: "token.issue",
			Object: fmt.Sprint(i), Outcome: "intended"}
		if i%1000 == 7 {
			e.Actor, e.Action = "bo", "source.add"
		}
		testkit.NoError(t, s.store.Audit(t.Context(), e))
	}
	search := func(query url.Values) (objects []string) {
		t.Helper()
		for {
			page, err := s.SearchAudit(t.Context(), query)
			testkit.NoError(t, err)
			for _, e := range page.Events {
				objects = append(objects, e.Object)
			}
			if page.Older == 0 {
				return objects
			}
			query.Set("before", fmt.Sprint(page.Older))
		}
	}
	for _, limit := range []string{"1", "2", "3", "1000"} {
		if got := search(url.Values{"actor": {"bo"}, "limit": {limit}}); !slices.Equal(got,
			[]string{"2007", "1007", "7"}) {
			t.Errorf("the events of bo, limit %s: got %q, want 2007, 1007 and 7", limit, got)
		}
	}
	if got := search(url.Values{"limit": {"999"}}); len(got) != 2500 || got[0] != "2499" || got[2499] != "0" {
		t.Errorf("all events: got %d, the first %q, want 2500 from 2499 to 0", len(got), got[:min(3, len(got))])
	}
	if got := search(url.Values{"since": {noon.Add(10 * time.Second).Format(time.RFC3339)},
		"until": {noon.Add(12 * time.Second).Format(time.RFC3339)}}); !slices.Equal(got, []string{"11", "10"}) {
		t.Errorf("the events of two seconds: got %q, want 11 and 10", got)
	}
	for query, says := range map[string]string{
		"since=now": "a day such as", "vid=a+b": "ASCII letters and digits", "vehicle=x": "first 16 digits",
		"before=x": "before is the value of older", "action=tokn": "action must be one of token.issue, token.grant",
		"limit=1001": "from 1 to 1000", "actor=a&actor=b": "given once", "who=a": "the audit takes actor",
	} {
		s.want(t, "GET", "/v1/audit?"+query, "", 400, says)
	}
}

func TestAuditExport(t *testing.T) {
	s := start(t)
	for i := range 2*ops.MaxEvents + 7 {
		e := access.Event{
			Time: noon.Add(time.Duration(i) * time.Second), Actor: "ada", Action: "token.issue",
			Object: fmt.Sprint(i), Outcome: "intended",
			Detail: "=HYPERLINK(\"http://x\")\n",
		}
		if i%2 == 0 {
			e.Actor, e.Admin = "bo", true
		}
		testkit.NoError(t, s.store.Audit(t.Context(), e))
	}
	export := func(format string, query url.Values) string {
		t.Helper()
		var out bytes.Buffer
		testkit.NoError(t, s.Export(t.Context(), &out, "/v1/audit", query, format))
		return out.String()
	}
	lines := strings.SplitAfter(export("ndjson", url.Values{}), "\n")
	want := `{"time":"2026-11-20T12:33:26Z","actor":"bo","admin":true,"action":"token.issue","object":"2006",`
	if len(lines) != 2*ops.MaxEvents+8 || !strings.HasPrefix(lines[0], want) {
		t.Errorf("the NDJSON: got %d lines, the first %s; want %d, %s", len(lines), lines[0], 2*ops.MaxEvents+8, want)
	}
	rows, err := csv.NewReader(strings.NewReader(export("csv", url.Values{"actor": {"bo"}}))).ReadAll()
	if want := []string{"2026-11-20T12:00:00Z", "bo", "true", "token.issue", "0", "'=HYPERLINK(\"http://x\")\ufffd",
		"intended"}; err != nil ||
		len(rows) != ops.MaxEvents+5 || !slices.Equal(rows[len(rows)-1], want) {
		t.Errorf("the CSV: got %d rows, the last %q, %v; want %d, %q",
			len(rows), rows[max(0, len(rows)-1):], err, ops.MaxEvents+5, want)
	}
	const head = "time,actor,admin,action,object,detail,outcome\n"
	if got := export("csv", url.Values{"actor": {"nobody"}}); got != head {
		t.Errorf("the CSV of nobody: got %q, want %q", got, head)
	}
	for query, says := range map[string]string{
		"format=xml": "format is json, ndjson or csv", "format=csv&limit=5": "leave out limit and before",
		"format=ndjson&before=5": "leave out limit and before",
	} {
		s.want(t, "GET", "/v1/audit?"+query, "", 400, says)
	}
	s.store.Fail("AuditPage", errDisk)
	s.want(t, "GET", "/v1/audit?format=csv", "", 503, "").lacks(t, "disk")
}

func TestAuditExport_IsSafeInASpreadsheet(t *testing.T) {
	s := start(t)
	wants := map[string]string{
		"NHeN4UqVsohGS55I7LBdh": "NHeN4UqVsohGS55I7LBdh", "": "", "a=b": "a=b",
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "|calc": "'|calc", " =1": "' =1",
		"＝1":   "'＝1",
		"\t=1": "\ufffd=1", "a\x1b[31mb\r\nc": "a\ufffd[31mb\ufffd\ufffdc", "a\u202eb": "a\ufffdb",
		"a\xffb": "a\ufffdb",
	}
	var texts []string
	for text := range wants {
		texts = append([]string{text}, texts...) // newest first
		testkit.NoError(t, s.store.Audit(t.Context(), access.Event{Time: noon, Actor: "ada", Action: "token.issue",
			Detail: text, Outcome: "intended"}))
	}
	var out bytes.Buffer
	testkit.NoError(t, s.Export(t.Context(), &out, "/v1/audit", url.Values{"actor": {"ada"}}, "csv"))
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 1+len(texts) {
		t.Fatalf("the CSV: got %d rows, %v; want %d", len(rows), err, 1+len(texts))
	}
	for i, text := range texts {
		if got := rows[i+1][5]; got != wants[text] {
			t.Errorf("%q becomes %q, want %q", text, got, wants[text])
		}
	}
}

func TestAuditExportBreaksOff(t *testing.T) {
	s := start(t)
	for range ops.MaxEvents + 1 {
		testkit.NoError(t, s.store.Audit(t.Context(), access.Event{Time: noon, Actor: "ada", Action: "token.issue",
			Outcome: "intended"}))
	}
	s.store.Before = func(_ context.Context, method string) {
		if method == "AuditPage" {
			s.store.Fail(method, errDisk) // the next call fails
		}
	}
	var out bytes.Buffer
	err := s.Export(t.Context(), &out, "/v1/audit", url.Values{}, "csv")
	if err == nil || strings.Contains(err.Error(), "disk") ||
		!strings.Contains(s.log.String(), "an export failed halfway") {
		t.Errorf("half an export: got %v after %d bytes, want an error without its cause, and a log", err, out.Len())
	}
}
