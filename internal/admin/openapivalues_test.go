package admin

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carstate/internal/access"
	"carstate/internal/ops"
	"carstate/internal/vehicle"
)

// values are the values of an enumeration.
type values struct {
	name string      // name of the schema
	text string      // its description
	of   [][2]string // each value with its description, which may be empty
}

var (
	outcomes = values{"Outcome", "Whether a query gets an answer, or why not.", [][2]string{
		{"answered", "There is an answer."},
		{vehicle.Unknown.String(), "There is no reading that could answer."},
		{vehicle.Stale.String(), "The newest readings are too old."},
		{vehicle.NotDriving.String(), "The car is parked."},
	}}
	verdicts = values{"Verdict", "A driving state or a state of the throttle system.", [][2]string{
		{"", "There is no verdict."}, {vehicle.NormalDriving.String(), ""}, {vehicle.SlowDriving.String(), ""},
		{vehicle.TrafficJam.String(), ""}, {vehicle.ThrottleNormal.String(), "The throttle system is normal."},
		{vehicle.ThrottleAnomaly.String(), "The throttle system has an anomaly."},
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

// namedValues are the enumerations among the members of bodies, by type and member.
var namedValues = map[string]values{
	"ListedVerdict.outcome": outcomes, "ListedVerdict.verdict": verdicts, "ListedVerdict.value": verdictValues,
	"Event.action": auditActions, "Event.outcome": auditOutcomes,
	"TokenRequest.operations": operations, "TokenSummary.operations": operations, "IssuedToken.operations": operations,
	"TokenRecord.last_refused_reason": tokenRefused, "SourceActivity.last_refused_reason": sourceRefused,
	"NodeSettings.log_level": levels,
}

// plain returns values without descriptions.
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

// valuesOf returns the schema of a member with the given values. A request must have one of them. In
// a response, clients must tolerate others, which a later version may add.
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

// title returns the name of a value for the code of clients, such as OutcomeNotDriving.
func title(of, value string) string {
	if value == "" {
		value = "none"
	}
	for _, word := range regexp.MustCompile("[0-9A-Za-z]+").FindAllString(value, -1) {
		of += strings.ToUpper(word[:1]) + word[1:]
	}
	return of
}

// rate returns the schema of a limit on calls or samples.
func rate() object {
	return object{"type": "string", "pattern": "^([1-9][0-9]{0,6}/(s|min|h))?$", "examples": []string{"10/s"},
		"description": "Maximum number per second, minute or hour. Empty: no limit."}
}

// TestOpenAPI_NamesValues checks that the OpenAPI document names the values of enumerations, and
// that clients must tolerate others in responses.
func TestOpenAPI_NamesValues(t *testing.T) {
	text, err := os.ReadFile("../../docs/openapi-admin.json")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Ref        string `json:"$ref"`
		Properties map[string]schema
		Items      *schema
		Const      *string
		Title      string
		Pattern    string
		OneOf      []schema
		AnyOf      []schema
	}
	var doc struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	all := doc.Components.Schemas
	for member, want := range map[string]string{
		"VehicleRecord.driving.outcome": "not_driving", "ListedVehicle.throttle.outcome": "stale",
		"ListedVerdict.verdict": "traffic jam", "ListedVerdict.value": "3", "Event.action": "token.issue",
		"Event.outcome": "intended", "TokenRecord.operations": "throttle_system",
		"TokenRequest.operations":         "throttle_system",
		"TokenRecord.last_refused_reason": "rate_limited", "SourceActivity.last_refused_reason": "rate",
		"NodeSettings.log_level": "debug",
	} {
		path := strings.Split(member, ".")
		at := all[path[0]]
		for _, name := range path[1:] {
			if at = at.Properties[name]; at.Items != nil {
				at = *at.Items
			}
			if at.Ref != "" {
				at = all[strings.TrimPrefix(at.Ref, "#/components/schemas/")]
			}
		}
		if sent := path[0] == "TokenRequest"; !sent {
			if len(at.AnyOf) != 2 || len(at.AnyOf[1].OneOf) != 0 {
				t.Errorf("%s: got %+v, want named values or another text", member, at)
				continue
			}
			at = at.AnyOf[0]
		}
		if !slices.ContainsFunc(at.OneOf, func(v schema) bool {
			return v.Const != nil && *v.Const == want && v.Title != ""
		}) {
			t.Errorf("%s: got %+v, want the value %q with a title", member, at.OneOf, want)
		}
	}
	for _, name := range []string{"TokenRequest", "TokenSummary", "SourceChange", "IssuedToken"} {
		p := regexp.MustCompile(all[name].Properties["rate"].Pattern)
		for rate, want := range map[string]bool{"": true, "10/s": true, "1000000/min": true, "0/s": false, "5": false,
			"-1/h": false} {
			if got := p.MatchString(rate); got != want {
				t.Errorf("%s: is %q a rate: got %t, want %t", name, rate, got, want)
			}
		}
	}
}
