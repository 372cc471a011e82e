package query

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"carstate/internal/access"
)

// failureDoc describes one failure in the documentation: its cause, and what the client can do. The
// documentation also shows the failure's own message.
type failureDoc struct {
	failure *failure
	cause   string
	cure    string
}

// statusDoc describes an HTTP status in the documentation, with all failures that have it.
type statusDoc struct {
	Status  int
	Title   string
	Meaning string
	Again   string // whether it helps to send the request again
	docs    []failureDoc
}

// exampleRate is the rate limit in the documentation's example of 429.
var exampleRate = access.Rate{Calls: 60, Window: time.Minute}

// statusDocs documents every failure that the service can answer with, as docs/errors.txt describes
// them. Each paragraph of the file describes a status or, after it, one failure with that status. A
// test checks that the file lacks no failure.
var statusDocs = sync.OnceValue(func() (all []statusDoc) {
	for text := range strings.SplitSeq(strings.TrimSpace(string(readDocFile("errors.txt"))), "\n\n") {
		lines := strings.Split(text, "\n")
		if status, title, ok := strings.Cut(lines[0], " "); ok {
			all = append(all, statusDoc{must(strconv.Atoi(status)), title, lines[1], lines[2], nil})
		} else {
			s := &all[len(all)-1]
			s.docs = append(s.docs, failureDoc{namedFailures[lines[0]], lines[1], lines[2]})
		}
	}
	return all
})

// body returns the body of an answer with the failure.
func (d failureDoc) body() string {
	var w response
	switch d.failure {
	case failRateLimited:
		w.failOverRate(exampleRate, time.Second)
	case failRefusals:
		w.failOverRefusals(12 * time.Second)
	default:
		return d.failure.body
	}
	return string(w.body)
}

// message returns the failure's message without its first word, the name of the outcome.
func (d failureDoc) message() string {
	var envelope struct{ Msg string }
	if err := json.Unmarshal([]byte(d.body()), &envelope); err != nil {
		panic(err) // a test holds that every failure is JSON
	}
	_, text, _ := strings.Cut(envelope.Msg, ": ")
	return text
}
