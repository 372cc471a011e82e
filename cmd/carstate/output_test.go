package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/cmdline"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

// Cases that the scripts in testdata lack.
func TestOutput(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 30, 0, time.FixedZone("", 3600))
	later := at.Add(time.Hour)
	twelve := make([]vehicle.ID, 12)
	for i := range twelve {
		twelve[i] = vehicle.ID("Car" + string(rune('A'+i)))
	}
	ended := ops.TokenSummary{ID: "cstidX", Developer: "Ada", Operations: []string{"throttle_system"}, Sandbox: true,
		CreatedAt: at, RevokedAt: &later}
	for _, c := range []struct {
		command string
		result  any
		want    string
	}{
		{"token list", []ops.TokenSummary{ended}, "" +
			"ID      DEVELOPER  OPERATIONS       VEHICLES  RATE      EXPIRES  REVOKED            LAST USED\n" +
			"cstidX  Ada        throttle_system  sandbox   no limit  never    2026-11-20 12:00Z  -\n"},
		{"token show", ops.TokenRecord{TokenSummary: ended, EarlierUntil: []time.Time{at, later},
			Vehicles: ops.VehicleList{Vehicles: access.VehicleSet(twelve...)}}, `token         cstidX
developer     Ada
operations    throttle_system
vehicles      CarA, CarB, CarC, CarD, CarE, CarF, CarG, CarH, CarI, CarJ, and 2 more (--json lists them)
rate          no limit
created       2026-11-20 11:00Z
expires       never
revoked       2026-11-20 12:00Z
last used     -
last refused  -
calls         0, 0 of them refused
replaced      an earlier secret is valid until 2026-11-20 11:00Z
replaced      an earlier secret is valid until 2026-11-20 12:00Z
`},
		{"token rotate", wire.RotatedToken{AccessToken: "T", Developer: "Ada", EarlierUntil: []time.Time{later, at}},
			"T\nThis is the new access token of Ada, shown only once. The old one is valid until 2026-11-20 12:00Z.\n"},
		{"source show", ops.SourceRecord{Name: "gateway", Rate: "5/s", CreatedAt: at,
			RemovedAt: &later, Seen: ops.SourceActivity{
				Refused: ops.NamedCounts{"too_old": 2, "invalid": 1}, RefusedKeys: ops.NamedCounts{"expired": 3},
				IgnoredSignals: 9, UnusedValues: 6, Accepted: 8, Late: 7,
				SpeedFactor: &ops.SpeedFactor{Factor: 3.6, Unit: "m/s", Vehicles: 5, Compared: 16},
			}}, `source           gateway
vehicles         none
rate             5/s
unknown signals  ignored
on roads         all its cars count as one
added            2026-11-20 11:00Z
expires          never
removed          2026-11-20 12:00Z

On this node since it started:
last seen        -
last refused     -
accepted samples 8
too late         7 of these
refused samples  3
  invalid        1
  too_old        2
refused keys     3
  expired        3
ignored signals  9
unused values    6
wrong speeds     positions show 3.6 times the speed (5 of 16 compared vehicles): is it in m/s?
`},
		{"operator list", []ops.OperatorSummary{{Name: "ada", CreatedAt: at}, {Name: "bo", CreatedAt: at, RotatedAt: &later,
			ReadOnly: true}},
			"" +
				"NAME  ADDED              KEY SINCE          MAY\n" +
				"ada   2026-11-20 11:00Z  2026-11-20 11:00Z  change\n" +
				"bo    2026-11-20 11:00Z  2026-11-20 12:00Z  read\n"},
		{"explain", ops.VehicleRecord{AskedAt: later, Driving: ops.VerdictRecord{Text: "Nothing is known.",
			ListedVerdict: ops.ListedVerdict{Outcome: "unknown"}}, Throttle: ops.VerdictRecord{
			ListedVerdict: ops.ListedVerdict{Outcome: "stale", Verdict: "normal", Value: "1", Time: &at}, Text: "No fault.",
			Rule: "throttle", Version: 2}}, `driving: no verdict (unknown)
  Nothing is known.

throttle: normal (1), but a query gets no answer: stale
  No fault.
  rule throttle, version 2

newest readings
`},
		{"forget", access.ForgetReceipt{Vehicle: "7f", ForgottenAt: at}, `vehicle        7f
forgotten      2026-11-20 11:00:30Z
states         0
token grants   0
source grants  0
erased         when the NATS cluster compacts its files
`},
		{"forget", access.ForgetReceipt{Vehicle: "7f", ForgottenAt: at, AllowedAt: &at},
			"allowed again at 2026-11-20 11:00Z: vehicle 7f starts without its old state; grant it to tokens and sources again\n"},
		{"status", wire.Status{Version: "v1", Reason: "it starts", NewerRecords: []string{"TOKENS", "AUDIT"}},
			`health       not ready: it starts; upgrade this node: it cannot read what a newer version stored in TOKENS, AUDIT
version      v1 (this command: development)
age of feed  -
vehicles     -
tokens       -
sources      -
operators    0
data dir     -
disk free    -
last backup  none in the newest events of the audit
`},
		{"read-only", wire.NodeSettings{ReadOnly: new(false)}, "off\n"},
	} {
		var b bytes.Buffer
		if err := (streams{out: &b, err: &b, command: c.command}).show(c.result); err != nil || b.String() != c.want {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.command, err, &b, c.want)
		}
	}
}

func TestOutputTemplatesBelongToCommands(t *testing.T) {
	var cmds commands
	names := map[string]bool{"": true}
	for _, n := range newParser(&cmds, nil, nil).Model.Leaves(true) {
		names[n.Path()] = true
	}
	for name := range cmdline.Sections(outputText) {
		if command := strings.TrimSuffix(name, " (stderr)"); !names[command] {
			t.Errorf("the template %q: got no command of this name, want one", name)
		}
	}
}
