package admin

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/roadmap"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/driving"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/test/opstest"
	"example.org/carstate/internal/test/testkit"
	"example.org/carstate/internal/throttle"
	"example.org/carstate/internal/vehicle"
)

var updateOpenAPI = flag.Bool("update-openapi", false, "write docs/openapi-admin.json again")

type object = map[string]any

var operationTexts = map[string]string{
	"token.list":   "List the tokens, oldest first.",
	"token.issue":  "Issue a token. Only this response contains its secret.",
	"token.show":   "Show a token, its usage and its vehicles.",
	"token.revoke": "Revoke a token at once, permanently. Revoking it again changes nothing.",
	"token.grant":  "Add vehicles to a token's grant and remove others.",
	"token.change": "Change the vehicles, the rate or the expiry of a token. A member that is left out is " +
		"not changed. An expired token becomes valid again with a later expiry.",
	"token.rotate": "Give a token a new secret. The old one stays valid for the overlap, a day if left out.",
	"source.list":  "List the sources by name, without removed ones.",
	"source.add":   "Add a source. Only this response contains its key.",
	"source.show":  "Show a source, even a removed one, and its vehicles.",
	"source.change": "Change the vehicles, the rate or the expiry of a source, or whether it is strict. A " +
		"member that is left out is not changed.",
	"source.remove":    "Remove a source at once. Removing it again changes nothing.",
	"source.rotate":    "Give a source a new key. The old one stays valid for the overlap, a day if left out.",
	"operator.list":    "List the operators by name, without removed ones.",
	"operator.add":     "Add an operator; needs the admin key. Only this response contains the operator's key.",
	"operator.remove":  "Remove an operator at once; needs the admin key.",
	"operator.rotate":  "Give an operator a new key; needs the admin key. The old one ends at once.",
	"admin-key.rotate": "Replace the admin key; needs it. The new one is in the file that the response names.",
	"vehicle.list":     "List vehicles in pages, or export the complete list as a file.",
	"vehicle.show":     "Show what is known of a vehicle, with the reasons of its verdicts.",
	"vehicle.forget":   "Erase a vehicle on every node and refuse its telemetry from now on.",
	"vehicle.allow":    "Accept telemetry of a forgotten vehicle again. It starts without stored data; 409 until it is erased.",
	"vehicle.relearn":  "Discard what was learned of a vehicle's throttle, and its anomaly; learn both again.",
	"vehicle.bury":     "Forget the vehicles of kept receipts.",
	"change.list": "Follow the changes of vehicles' states as server-sent events. Each event change has a " +
		"ChangedVehicle as its data. An event gap says that changes are missing since Last-Event-ID.",
	"road.list": "Show the traffic on the stretches of road in a box, the worst first, as GeoJSON.",
	"road.forget": "Forget what is known of the roads in a box: west, south, east and north in degrees. Other " +
		"nodes follow within five minutes.",
	"backup.take":     "Take a backup. An incomplete backup lacks its trailer.",
	"backup-key.show": "Show the key with which this service authenticates its backups; needs the admin key.",
	"backup.restore": "Restore a backup into this service, which must be empty, or compare them; needs the admin key. " +
		"The response has one JSON " +
		"object per line; the last one contains the report or an error.",
	"node.show":          "Show the settings of the node that can be changed while it runs.",
	"node.change":        "Change the log level of the node, or whether it accepts telemetry, until the process ends.",
	"status.show":        "Show the health, the version and the figures of the node.",
	"audit.list":         "Search the audit in pages, or export all matching events as a file; newest first.",
	"GET /healthz":       "Report whether the process is alive.",
	"GET /readyz":        "Report whether the node performs all of its roles.",
	"GET /readyz/query":  "Report whether the node answers queries.",
	"GET /readyz/ingest": "Report whether the node stores telemetry.",
	"GET /metrics":       "Show the metrics in the format of Prometheus.",
}

func asked(name, text string, schema object) object {
	return object{"name": name, "in": "query", "description": text, "schema": schema}
}

var formatAsked = asked("format",
	"One page as JSON, or the complete list as NDJSON or CSV. The Accept header can select these, too.",
	object{"type": "string", "enum": []string{"json", "ndjson", "csv"}, "default": "json"})

var pages = map[string]reflect.Type{
	"audit.list":   reflect.TypeFor[ops.EventList](),
	"vehicle.list": reflect.TypeFor[ops.VehiclePage](),
}

var parameters = map[string][]object{
	"audit.list": {
		asked("actor", "The complete name of the actor.", object{"type": "string"}),
		asked("action", "An action such as token.issue, or token for all actions on tokens.", object{"type": "string"}),
		asked("since", "Events at or after this time: a time, or a day in UTC.", object{"type": "string"}),
		asked("until", "Events before this time: a time, or a day in UTC, which is included.",
			object{"type": "string"}),
		asked("vid", "Events about this vehicle. The service hashes the vid for the search.", vid()),
		asked("vehicle", "Events about the vehicle with this mark, as the audit shows it.",
			object{"type": "string", "pattern": "^[0-9a-f]{16}$"}),
		asked("before", "The value of older from the previous page.", object{"type": "integer", "minimum": 0}),
		asked("limit", "Number of events on a page.",
			object{"type": "integer", "minimum": 1, "maximum": ops.MaxEvents, "default": ops.DefaultEvents}),
		formatAsked,
	},
	"vehicle.list": {
		asked("driving", "Vehicles with this driving state. Must not be combined with reason.",
			object{"type": "string", "enum": ops.DrivingFilters}),
		asked("throttle", "Vehicles with this throttle state.", object{"type": "string", "enum": ops.ThrottleFilters}),
		asked("reason", "Vehicles for which a query gets no answer, for this reason.",
			object{"type": "string", "enum": ops.ReasonFilters}),
		asked("prefix", "The beginning of the vid.", vid()),
		asked("source", "Vehicles that the source of this name may report.", object{"type": "string"}),
		asked("sort", "The order of the list; an export has none.", object{"type": "string", "enum": ops.VehicleSorts}),
		asked("limit", "Number of vehicles on a page.",
			object{"type": "integer", "minimum": 1, "maximum": ops.MaxVehicles}),
		asked("cursor", "The value of next from the previous page.", object{"type": "string"}),
		formatAsked,
	},
	"change.list": {
		asked("driving", "Changes from or to these driving states, separated by commas.", object{"type": "string"}),
		asked("throttle", "Changes from or to these throttle states, separated by commas. With driving: either.",
			object{"type": "string"}),
		{"name": "Last-Event-ID", "in": "header", "description": "The id of the last event that was received.",
			"schema": object{"type": "string"}},
	},
	"road.list": {
		{"name": "bbox", "in": "query", "description": "West, south, east and north in degrees, separated by " +
			"commas; if left out, all of the earth.",
			"schema": object{"type": "string"}, "example": "11.2,44.4,11.4,44.6"},
		{"name": "limit", "in": "query", "description": "Maximum number of stretches.",
			"schema": object{"type": "integer", "minimum": 1, "maximum": 20000, "default": 20000}},
	},
	"backup.restore": {{"name": wire.BackupKeyHeader, "in": "header",
		"description": "The key of the service that made the backup, or " + wire.AnyBackup +
			"; not needed for this service's own backups.", "schema": object{"type": "string"}},
		{"name": "compare", "in": "query", "allowEmptyValue": true, "schema": object{"type": "string"},
			"description": "If present, change nothing and report how the backup and the service differ."}},
}

// Of the request, and of the response.
var streams = map[string][2]string{
	"audit.list":     {"", "application/x-ndjson"},
	"vehicle.list":   {"", "application/x-ndjson"},
	"road.list":      {"", "application/geo+json"},
	"change.list":    {"", "text/event-stream"},
	"backup.take":    {"", wire.BackupType},
	"backup.restore": {wire.BackupType, "application/x-ndjson"},
}

var shapes = map[string]reflect.Type{
	"change.list": reflect.TypeFor[ops.ChangedVehicle](),
	"road.list":   reflect.TypeFor[roadmap.Collection](),
}

type schemas struct {
	of    object
	types map[string]reflect.Type
	named map[string]values
}

func vid() object {
	return object{"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[0-9A-Za-z]+$"}
}

// Types with their own JSON format.
var written = map[reflect.Type]func() object{
	reflect.TypeFor[time.Time]():      func() object { return object{"type": "string", "format": "date-time"} },
	reflect.TypeFor[jsontext.Value](): func() object { return object{"type": []string{"string", "null"}, "format": "date-time"} },
	reflect.TypeFor[ops.VIDs]():       func() object { return object{"type": "array", "items": vid()} },
	reflect.TypeFor[ops.VehicleList](): func() object {
		return object{"description": "In a request, at most 10,000 by name.",
			"oneOf": []object{{"type": "string", "const": "all"}, {"type": "array", "items": vid()}}}
	},
	reflect.TypeFor[ops.VehicleCount](): func() object {
		return object{"oneOf": []object{{"type": "string", "const": "all"}, {"type": "integer", "minimum": 0}}}
	},
}

// Only types in written decide whether they may be null. Otherwise a request may contain neither
// null nor unknown members, and a pointer in a response may be null.
func (s *schemas) schemaOf(t reflect.Type, sent bool) (object, error) {
	if make := written[t]; make != nil {
		return make(), nil
	}
	switch t.Kind() {
	case reflect.String:
		return object{"type": "string"}, nil
	case reflect.Bool:
		return object{"type": "boolean"}, nil
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}, nil
	case reflect.Float64:
		return object{"type": "number"}, nil
	case reflect.Slice, reflect.Array:
		items, err := s.schemaOf(t.Elem(), sent)
		return object{"type": "array", "items": items}, err
	case reflect.Map:
		values, err := s.schemaOf(t.Elem(), sent)
		return object{"type": "object", "additionalProperties": values}, err
	case reflect.Pointer:
		to, err := s.schemaOf(t.Elem(), sent)
		if kind, ok := to["type"].(string); ok && !sent {
			to["type"] = []string{kind, "null"}
		} else if !sent {
			to = object{"oneOf": []object{to, {"type": "null"}}}
		}
		return to, err
	case reflect.Struct:
		return s.ref(t, sent)
	}
	return nil, fmt.Errorf("%s has no schema here", t)
}

func (s *schemas) ref(t reflect.Type, sent bool) (object, error) {
	name := t.Name()
	ref := object{"$ref": "#/components/schemas/" + name}
	if s.types[name] == t {
		return ref, nil
	}
	if s.types[name] != nil || name == "" {
		return nil, fmt.Errorf("%s is not the only type of its name", t)
	}
	s.types[name] = t
	properties, required := object{}, []string{}
	if err := s.members(t, sent, properties, &required); err != nil {
		return nil, err
	}
	schema := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	if sent {
		schema["additionalProperties"] = false
	}
	s.of[name] = schema
	return ref, nil
}

func (s *schemas) members(t reflect.Type, sent bool, properties object, required *[]string) error {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if err := s.members(f.Type, sent, properties, required); err != nil {
				return err
			}
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			return fmt.Errorf("%s.%s has no name in JSON", t, f.Name)
		}
		schema, err := s.schemaOf(f.Type, sent)
		if err != nil {
			return err
		}
		member := t.Name() + "." + name
		delete(s.named, member)
		if values, ok := namedValues[member]; ok && schema["type"] == "array" {
			schema["items"] = s.valuesOf(values, sent)
		} else if ok {
			schema = s.valuesOf(values, sent)
		}
		if name == "rate" {
			schema = rate()
		}
		properties[name] = schema
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
	return nil
}

func adminDocument(s *Server) (object, error) {
	handlers := s.probes()
	maps.Copy(handlers, s.calls())
	components := &schemas{object{}, map[string]reflect.Type{}, maps.Clone(namedValues)}
	if _, err := components.ref(reflect.TypeFor[wire.Failure](), false); err != nil {
		return nil, err
	}
	paths := object{}
	unused := maps.Clone(operationTexts)
	for _, h := range handlers { // a type that is also sent has the schema of responses
		if e, ok := h.(endpoint); ok && e.out != nil {
			if _, err := components.schemaOf(e.out, false); err != nil {
				return nil, err
			}
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(handlers)) {
		e, ok := handlers[pattern].(endpoint)
		if !ok {
			e.name = pattern
		}
		text := operationTexts[e.name]
		if text == "" {
			return nil, fmt.Errorf("%s has no text in this test", e.name)
		}
		delete(unused, e.name)
		method, path, _ := strings.Cut(pattern, " ")
		operation, err := components.operation(path, e, text, ok)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		item, known := paths[path].(object)
		if !known {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = operation
	}
	for name := range unused {
		return nil, fmt.Errorf("no call is %s", name)
	}
	for member := range components.named {
		return nil, fmt.Errorf("no body has the member %s", member)
	}
	return object{
		"openapi": "3.1.1",
		"info": object{
			"title": "carstate, the admin API", "version": "0.2.0",
			"summary": "Tokens, sources, operators, vehicles, and the audit.",
			"description": "The API for the operators of a running service, described in docs/admin.md. A " +
				"later version may add members to responses. Unknown members of requests are refused. Every path " +
				"with GET accepts HEAD.",
			"contact": object{"name": "The operator of this installation"},
			"license": object{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
		},
		"servers": []object{{"url": "/",
			"description": "The admin listener, by default http on port 8082 of the node itself."}},
		"tags":     tags(),
		"security": []object{{"key": []string{}}},
		"paths":    paths,
		"components": object{
			"securitySchemes": object{"key": object{"type": "http", "scheme": "bearer",
				"description": "The admin key (csa_…) or an operator's key (cso_…)."}},
			"responses": object{"Refused": object{
				"description": "The reason and what to do, in one line.",
				"content": object{"application/json": object{
					"schema": object{"$ref": "#/components/schemas/Failure"},
				}},
			}},
			"schemas": components.of,
		},
	}, nil
}

func tags() (all []object) {
	for _, t := range [][2]string{
		{"token", "The tokens of developers."}, {"source", "The cars and gateways that send telemetry."},
		{"operator", "The people who administer the service."},
		{"vehicle", "Single vehicles."}, {"road", "The roads."}, {"backup", "Backups."}, {"audit", "The audit."},
		{"node", "The node itself."},
	} {
		all = append(all, object{"name": t[0], "description": t[1]})
	}
	return all
}

func (s *schemas) operation(path string, e endpoint, text string, keyed bool) (object, error) {
	tag, _, _ := strings.Cut(e.name, ".")
	tag = strings.TrimSuffix(tag, "-key")
	summary, _, _ := strings.Cut(strings.TrimSuffix(text, "."), ". ")
	operation := object{"summary": summary, "description": text, "operationId": e.name}
	list := append([]object{}, parameters[e.name]...)
	for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
		p := object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string", "minLength": 1}}
		if m[1] == "vid" {
			p["schema"] = vid()
		}
		list = append(list, p)
	}
	if len(list) > 0 {
		operation["parameters"] = list
	}
	if !keyed {
		answer := object{"description": "One line of text.",
			"content": object{"text/plain": object{"schema": object{"type": "string"}}}}
		operation["operationId"] = strings.ReplaceAll(strings.Trim(path, "/"), "/", ".")
		operation["tags"], operation["security"] = []string{"node"}, []object{}
		operation["responses"] = object{"200": answer, "503": answer,
			"4XX": object{"$ref": "#/components/responses/Refused"}}
		return operation, nil
	}
	switch tag {
	case "status", "admin", "node":
		tag = "node"
	case "change":
		tag = "vehicle"
	}
	operation["tags"] = []string{tag}
	success := object{"description": "It is done."}
	media := streams[e.name]
	if media[0] != "" {
		operation["requestBody"] = object{"required": true,
			"content": object{media[0]: object{"schema": object{"type": "string", "format": "binary"}}}}
	}
	if media[1] != "" {
		success["content"] = object{media[1]: object{"schema": object{"type": "string"}}}
	}
	if t := shapes[e.name]; t != nil {
		shape, err := s.schemaOf(t, false)
		if err != nil {
			return nil, err
		}
		if media[1] == "text/event-stream" {
			shape = object{"type": "string", "contentMediaType": "application/json", "contentSchema": shape}
		}
		success["content"] = object{media[1]: object{"schema": shape}}
	}
	if paged := pages[e.name]; paged != nil {
		page, err := s.schemaOf(paged, false)
		if err != nil {
			return nil, err
		}
		success["content"] = object{
			"application/json": object{"schema": page}, media[1]: object{"schema": object{"type": "string"}},
			"text/csv": object{"schema": object{"type": "string"}},
		}
	}
	if e.in != nil && e.in != reflect.TypeFor[nothing]() {
		schema, err := s.schemaOf(e.in, true)
		if err != nil {
			return nil, err
		}
		operation["requestBody"] = object{"content": object{"application/json": object{"schema": schema}}}
	}
	if e.out != nil {
		schema, err := s.schemaOf(e.out, false)
		if err != nil {
			return nil, err
		}
		success["content"] = object{"application/json": object{"schema": schema}}
	}
	if (e.out == nil) != (media[1] != "") {
		return nil, fmt.Errorf("its answer is not described")
	}
	operation["responses"] = object{
		fmt.Sprint(e.status): success,
		"4XX":                object{"$ref": "#/components/responses/Refused"},
		"503":                object{"$ref": "#/components/responses/Refused"},
	}
	return operation, nil
}

type noNode struct{ Node }

type noConsole struct{ http.Handler }

func (noConsole) Close() {}

func TestOpenAPIIsOfTheRoutes(t *testing.T) {
	_, hash := access.NewSecret(access.AdminKind)
	operations := opstest.New().Config()
	operations.AdminKey = hash
	registry := prometheus.NewRegistry()
	ready := func() error { return nil }
	doc, err := adminDocument(New(Config{
		Ops: ops.New(operations), Gatherer: registry, Registry: registry, Roads: new(roadmap.Reader), Node: noNode{},
		Console:  noConsole{http.NotFoundHandler()},
		ReadyFor: map[string]func() error{"query": ready, "ingest": ready},
	}))
	testkit.NoError(t, err)
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	testkit.NoError(t, e.Encode(doc))
	const file = "../../docs/openapi-admin.json"
	if *updateOpenAPI {
		testkit.NoError(t, os.WriteFile(file, want.Bytes(), 0o644))
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s: got %v or other routes, want those of the code: go test ./internal/admin "+
			"-run TestOpenAPIIsOfTheRoutes -update-openapi", file, err)
	}
}

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
