package query

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"
	text "text/template"
	"time"
)

// localBase is the base URL of the service in the sample programs. The page's script replaces it by
// the address from which the page was loaded.
const localBase = "http://127.0.0.1:8080"

type operationDoc struct {
	ID       string // the id of its section in the page
	Title    string
	Question string
	Path     string
	Scope    string // the operation's name in a token
	Field    string // the JSON field of the answer
	Vid      string // the vehicle of the samples
	Values   []valueDoc
	Samples  []sampleDoc
}

// valueDoc documents one value of the JSON field in which an operation returns its verdict.
type valueDoc struct {
	Value, Name, Meaning string
	Status               int
}

// sampleDoc is a sample program in one language that calls an operation.
type sampleDoc struct {
	Language, Title, Code string
}

var operationDocs = []operationDoc{
	{
		ID: "car-driving-state", Title: "Car driving state",
		Question: "Is this car driving normally, slowly or in a traffic jam?",
		Path:     drivingPath, Scope: "car_driving_state", Field: "vehicle_runing_state", Vid: "SandboxJam",
		Values: []valueDoc{
			{"1", "normal driving", "The car moves as the road allows.", 1},
			{"2", "slow driving", "Its mean speed of the last minutes is low, but it keeps moving.", 1},
			{"3", "traffic jam", "It creeps, or stops and starts again.", 1},
			{"0", "no answer", "status is 0, and the header Carstate-Reason says why.", 0},
		},
	},
	{
		ID: "throttle-system", Title: "Throttle system", Question: "Is this car's throttle system healthy?",
		Path: throttlePath, Scope: "throttle_system", Field: "throttle_system", Vid: "SandboxAnomaly",
		Values: []valueDoc{
			{"1", "normal", "The readings show no fault of throttle or pedal.", 1},
			{"0", "anomaly",
				"The car reports a fault of its throttle or pedal, or the readings contradict each other.", 1},
			{"", "no answer", "status is 0, and the header Carstate-Reason says why. " +
				"The value is empty, because 0 means anomaly.", 0},
		},
	},
}

// sampleLanguages lists the languages of the sample programs in the order in which the page shows
// them.
var sampleLanguages = []sampleDoc{
	{Language: "curl", Title: "curl"},
	{Language: "go", Title: "Go"},
	{Language: "python", Title: "Python"},
	{Language: "javascript", Title: "JavaScript"},
}

var (
	pageTemplate = template.Must(template.New("page.html.tmpl").Funcs(pageFunctions).
			ParseFS(docFiles, "docs/page.html.tmpl"))
	sampleTemplates = text.Must(text.ParseFS(docFiles, "docs/samples/*.tmpl"))
)

var pageFunctions = template.FuncMap{
	"message": failureDoc.message,
	"word":    func(s statusDoc) string { return s.docs[0].failure.outcome.String() },
	"docs":    func(s statusDoc) []failureDoc { return s.docs },
	"cause":   func(d failureDoc) string { return d.cause },
	"cure":    func(d failureDoc) string { return d.cure },
}

// renderPage returns the documentation page, which is served at /. The page states maxAge, the age
// up to which a verdict is answered.
func renderPage(maxAge time.Duration) []byte {
	var b bytes.Buffer
	data := struct {
		Base       string
		MaxAge     string // "" if verdicts of any age are answered
		Operations []operationDoc
		Statuses   []statusDoc
	}{localBase, inWords(maxAge), nil, statusDocs()}
	for _, op := range operationDocs {
		op.Samples = op.samples(localBase)
		data.Operations = append(data.Operations, op)
	}
	if err := pageTemplate.Execute(&b, data); err != nil {
		panic(err) // a test renders the page
	}
	return b.Bytes()
}

// inWords returns a duration as text, such as "90 seconds". The unit is the largest of hours,
// minutes and seconds in which the duration is a whole number above one. If there is none, the text
// is that of [time.Duration.String]. If d is not positive, inWords returns "".
func inWords(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"hours", time.Hour}, {"minutes", time.Minute}, {"seconds", time.Second}} {
		if n := d / u.unit; n > 1 && d%u.unit == 0 {
			return fmt.Sprintf("%d %s", n, u.name)
		}
	}
	if d > 0 {
		return d.String()
	}
	return ""
}

// samples returns programs that call the operation, one per language. base is the base URL of the
// service.
func (op operationDoc) samples(base string) []sampleDoc {
	var all []sampleDoc
	for _, s := range sampleLanguages {
		var b strings.Builder
		data := struct {
			operationDoc
			Base string
		}{op, base}
		if err := sampleTemplates.ExecuteTemplate(&b, s.Language+".tmpl", data); err != nil {
			panic(err) // a test runs the samples
		}
		s.Code = b.String()
		all = append(all, s)
	}
	return all
}
