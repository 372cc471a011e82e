package query

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"text/template"
)

var openAPITemplate = template.Must(template.New("openapi.json.tmpl").Funcs(template.FuncMap{
	"failures": failureExamples,
	"words":    firstWords,
}).ParseFS(docFiles, "docs/openapi.json.tmpl"))

// renderOpenAPI returns the OpenAPI document that is served at /openapi.json. Its examples of
// failures are generated from the failures that the service sends.
func renderOpenAPI() []byte {
	var b bytes.Buffer
	if err := openAPITemplate.Execute(&b, nil); err != nil {
		panic(err) // a test reads the document
	}
	return b.Bytes()
}

// failureExamples returns an "examples" object of OpenAPI with an example of each failure
// that has the status.
func failureExamples(status int) (string, error) {
	type example struct {
		Summary string          `json:"summary"`
		Value   json.RawMessage `json:"value"`
	}
	examples := map[string]example{}
	for _, s := range statusDocs() {
		if s.Status != status {
			continue
		}
		for _, d := range s.docs {
			examples[d.failure.name] = example{d.cause, json.RawMessage(d.body())}
		}
	}
	out, err := json.Marshal(examples)
	return string(out), err
}

// firstWords returns the words with which the messages of failures begin, each once, in
// alphabetical order and separated by commas.
func firstWords() string {
	var words []string
	for _, s := range statusDocs() {
		for _, d := range s.docs {
			words = append(words, d.failure.outcome.String())
		}
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), ", ")
}
