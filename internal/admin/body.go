package admin

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"example.org/carstate/internal/ops"
)

// explainBody repeats nothing of the body.
func explainBody[In any](err error) *ops.Refusal {
	var (
		r      *ops.Refusal
		big    *http.MaxBytesError
		syntax *jsontext.SyntacticError
		wrong  *json.SemanticError
	)
	switch known := members(reflect.TypeFor[In]()); {
	case errors.As(err, &r):
		return r
	case errors.As(err, &big):
		return ops.Refusalf(http.StatusRequestEntityTooLarge,
			"the body is larger than %d MiB; a list has at most 10,000 vehicles", maxBody>>20)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return ops.Refusalf(http.StatusBadRequest, "the body contains a member twice")
	case errors.Is(err, json.ErrUnknownName) && len(known) == 0:
		return ops.Refusalf(http.StatusBadRequest, "this call takes no members")
	case errors.Is(err, json.ErrUnknownName):
		return ops.Refusalf(http.StatusBadRequest, "the body has an unknown member: this call takes %s",
			strings.Join(known, ", "))
	case errors.As(err, &syntax):
		return ops.Refusalf(http.StatusBadRequest, "the body is not valid JSON, at byte %d", syntax.ByteOffset)
	case errors.As(err, &wrong):
		if m, _, _ := strings.Cut(strings.TrimPrefix(string(wrong.JSONPointer), "/"), "/"); slices.Contains(known, m) {
			return ops.Refusalf(http.StatusBadRequest, "%s has the wrong type", m)
		}
		return ops.Refusalf(http.StatusBadRequest, "the body must be a JSON object")
	}
	return ops.Refusalf(http.StatusBadRequest, "the body could not be read to its end")
}

func members(t reflect.Type) []string {
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" { // an embedded struct has none
			names = append(names, name)
		}
	}
	return names
}
