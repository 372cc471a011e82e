package admin

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

type values struct {
	name string
	text string
	of   [][2]string // each value and its description, which may be empty
}

var (
	outcomes = values{"Outcome", "Whether a query gets an answer, or why not.", [][2]string{
		{"answered", "There is an answer."},
		{vehicle.Unknown.String(), "There is no reading that could answer."},
		{vehicle.Stale.String(), "The newest readings are too old."},
		{vehicle.NotDriving.String(), "The car is parked."},
	}}
	verdicts = values{"Verdict", "A driving state or a state of the throttle system.", [][2]string{
		{"", "There is no verdict."}, {driving.Normal.String(), ""}, {driving.Slow.String(), ""},
		{driving.Jam.String(), ""}, {throttle.Normal.String(), "The throttle system is normal."},
		{throttle.Anomaly.String(), "The throttle system has an anomaly."},
	}}
	verdictValues = values{"VerdictValue", "The verdict as in the answer to a query.", [][2]string{
		{"", "There is no verdict."}, {"0", "An anomaly of the throttle system."},
		{"1", "Normal driving, or a normal throttle system."}, {"2", "Slow driving."}, {"3", "A traffic jam."},
	}}
	auditActions  = values{"Action", "An operation.", append(plain(ops.Actions...), newerEvent)}
	auditOutcomes = values{"EventOutcome", "Whether the event was stored before the operation or after its failure.",
		[][2]string{{"intended", "Stored before the operation."}, {"failed", "The operation failed."}, newerEvent}}
	operations   = values{"Operation", "An operation of the query API.", plain(access.AllOperations.Names()...)}
	levels       = values{"LogLevel", "The least severe messages that are logged.", plain(logLevels...)}
	tokenRefused = values{"TokenRefusal", "Why a call with the token was refused.",
		append([][2]string{neverRefused}, plain(tokenRefusals()...)...)}
	sourceRefused = values{"SourceRefusal", "Why a sample or the key of the source was refused.",
		append([][2]string{neverRefused}, plain(sourceRefusals()...)...)}

	newerEvent   = [2]string{"unknown", "A newer version of carstate wrote the event."}
	neverRefused = [2]string{"", "Nothing was refused."}
)

var namedValues = map[string]values{
	"ListedVerdict.outcome": outcomes, "ListedVerdict.verdict": verdicts, "ListedVerdict.value": verdictValues,
	"Event.action": auditActions, "Event.outcome": auditOutcomes,
	"TokenRequest.operations": operations, "TokenSummary.operations": operations, "IssuedToken.operations": operations,
	"TokenRecord.last_refused_reason": tokenRefused, "SourceActivity.last_refused_reason": sourceRefused,
	"NotedRefusal.reason":    sourceRefused,
	"NodeSettings.log_level": levels,
	"ChangedStates.driving": {"DrivingState", "A driving state, or why there is none.",
		plain(slices.Concat(ops.DrivingFilters, ops.ReasonFilters)...)},
	"ChangedStates.throttle": {"ThrottleState", "A throttle state, or why there is none.",
		plain(slices.Concat(ops.ThrottleFilters, []string{"stale", "unknown"})...)},
}

func plain(texts ...string) (list [][2]string) {
	for _, text := range texts {
		list = append(list, [2]string{text, ""})
	}
	return list
}

func tokenRefusals() (names []string) {
	for o := access.InsufficientScope; o.Known(); o++ {
		names = append(names, o.String())
	}
	return names
}

func sourceRefusals() (names []string) {
	for r := range access.Refusal(access.Refusals) {
		names = append(names, r.String())
	}
	return names
}

// Clients must tolerate values in a response that a later version may add.
func (s *schemas) valuesOf(v values, sent bool) object {
	var list []object
	for _, value := range v.of {
		of := object{"const": value[0], "title": title(v.name, value[0])}
		if value[1] != "" {
			of["description"] = value[1]
		}
		list = append(list, of)
	}
	closed := object{"type": "string", "oneOf": list}
	if sent {
		return closed
	}
	s.of[v.name] = object{"type": "string", "description": v.text + " Clients should treat other values as unknown.",
		"anyOf": []object{closed, {"type": "string"}}}
	return object{"$ref": "#/components/schemas/" + v.name}
}

// For the code of clients, such as OutcomeNotDriving.
func title(of, value string) string {
	if value == "" {
		value = "none"
	}
	for _, word := range regexp.MustCompile("[0-9A-Za-z]+").FindAllString(value, -1) {
		of += strings.ToUpper(word[:1]) + word[1:]
	}
	return of
}

func rate() object {
	return object{"type": "string", "pattern": "^([1-9][0-9]{0,6}/(s|min|h)|none|10/s a vehicle, 36000 at once)?$",
		"examples": []string{"10/s"}, "description": "Maximum number per second, minute or hour. Empty: the default, which " +
			"is no limit but for a source with named vehicles. none: no limit."}
}

func TestOpenAPI_RatePattern(t *testing.T) {
	pattern := regexp.MustCompile(rate()["pattern"].(string))
	for _, text := range []string{"", "10/s", "none", "10/s a vehicle, 36000 at once", "1000000/min", "0/s", "5", "-1/h"} {
		_, err := access.ParseRate(text)
		if got, want := pattern.MatchString(text), err == nil; got != want {
			t.Errorf("is %q a rate: got %t, want %t", text, got, want)
		}
	}
}
