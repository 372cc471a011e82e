package admin

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"strconv"

	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
)

type nothing struct{}

// endpoint has the name, status and JSON types (or nil) of a call for the test of the OpenAPI
// document.
type endpoint struct {
	http.Handler
	name    string
	status  int
	in, out reflect.Type
}

func (s *Server) handle(name string, status int, do func(http.ResponseWriter, *http.Request) error) endpoint {
	seconds := s.metrics.seconds.WithLabelValues(name)
	return endpoint{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start, code := s.cfg.Now(), status
		r, err := s.identify(w, r)
		if err == nil && caller(r).ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
			err = ops.ErrReadOnly // before the body is read
		}
		if err == nil {
			err = do(w, r)
		}
		if err != nil {
			code = writeError(w, s.ops.Explain(name, err))
		}
		s.metrics.calls.WithLabelValues(name, strconv.Itoa(code)).Inc()
		seconds.Observe(s.cfg.Now().Sub(start).Seconds())
	}), name: name, status: status}
}

func call[In, Out any](s *Server, name string, status int, do func(*http.Request, In) (Out, error)) http.Handler {
	e := s.handle(name, status, func(w http.ResponseWriter, r *http.Request) error {
		in, err := readBody[In](w, r)
		if err != nil {
			return err
		}
		out, err := do(r, in)
		if err == nil {
			writeJSON(w, status, out)
		}
		return err
	})
	e.in, e.out = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	return e
}

// Every error of readBody is a refusal.
func readBody[In any](w http.ResponseWriter, r *http.Request) (in In, err error) {
	if r.ContentLength == 0 {
		return in, nil
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return in, ops.Refusalf(http.StatusUnsupportedMediaType, "the body must be JSON: Content-Type: application/json")
	}
	err = json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxBody), &in, json.RejectUnknownMembers(true), noNulls)
	if err != nil {
		return in, explainBody[In](err)
	}
	return in, nil
}

func writeError(w http.ResponseWriter, r *ops.Refusal) int {
	if r.Status == http.StatusServiceUnavailable || r.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, r.Status, wire.Failure{Error: r.Error()})
	return r.Status
}

// writeJSON ignores errors: the client has disconnected.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if json.MarshalWrite(w, v, json.Deterministic(true)) == nil {
		w.Write([]byte("\n"))
	}
}

// Null is ambiguous for an optional member: a client may want to leave the value unchanged, or to
// remove it.
var noNulls = json.WithUnmarshalers(json.JoinUnmarshalers(refuseNull[string](), refuseNull[bool](),
	refuseNull[ops.VehicleList]()))

func refuseNull[T any]() *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ **T) error {
		if d.PeekKind() == jsontext.KindNull {
			return errors.New("null says nothing: leave the member out")
		}
		return errors.ErrUnsupported
	})
}
