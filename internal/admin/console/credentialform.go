package console

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

func (c *Console) requestOf(kind access.Kind, form url.Values) (r access.Credential, err error) {
	r = access.Credential{Kind: kind, Name: strings.TrimSpace(form.Get("name"))}
	switch kind {
	case access.OperatorKind:
		r.ReadOnly = form.Get("read-only") != ""
		return r, nil
	case access.SourceKind:
		r.Strict = form.Get("strict") != ""
		r.TrustedCrowd = crowdOf(form)
	default:
		r.Developer = strings.TrimSpace(form.Get("developer"))
		if r.Operations, err = access.ParseOperations(form["operation"]); err != nil {
			return r, err
		}
	}
	switch scope := form.Get("scope"); {
	case scope == "all":
		r.Vehicles = access.AllVehicles()
	case kind == access.SourceKind || scope == "list":
		if r.Vehicles, err = parseVehicles(form.Get("vehicles")); err != nil {
			return r, err
		}
	case scope == "sandbox":
		r.Kind = access.SandboxKind
	default:
		return r, errors.New("choose which vehicles the token sees")
	}
	if r.Rate, err = access.ParseRate(strings.TrimSpace(form.Get("rate"))); err != nil {
		return r, err
	}
	if kind == access.TokenKind || form.Has("days") {
		r.Expires, err = c.expiryOf(form)
	}
	return r, err
}

// changeOf leaves out a field with the value that the page showed: it would undo what another
// operator has changed in the meantime.
func (c *Console) changeOf(form url.Values) (to access.Change, err error) {
	if text := strings.TrimSpace(form.Get("rate")); text != form.Get("rate-was") {
		rate, err := access.ParseRate(text)
		if err != nil {
			return to, err
		}
		to.Rate = &rate
	}
	if form.Get("days") != "" {
		expires, err := c.expiryOf(form)
		if err != nil {
			return to, err
		}
		to.Expires = &expires
	}
	if strict := form.Get("strict"); strict != form.Get("strict-was") {
		to.Strict = new(strict != "")
	}
	to.TrustedCrowd = crowdOf(form)
	if to == (access.Change{}) {
		return to, errors.New("nothing to change: the form is the same as before")
	}
	return to, nil
}

func crowdOf(form url.Values) *bool {
	if text := form.Get("crowd"); text != "" {
		return new(text == "yes")
	}
	return nil
}

func (c *Console) expiryOf(form url.Values) (time.Time, error) {
	if form.Get("days") == "never" {
		return time.Time{}, nil
	}
	days, err := strconv.Atoi(form.Get("days"))
	if err != nil || days < 1 || days > 3650 {
		return time.Time{}, errors.New("choose when it expires")
	}
	return c.Now().Add(time.Duration(days) * 24 * time.Hour), nil
}

func overlapOf(form url.Values) (time.Duration, error) {
	hours, err := strconv.Atoi(form.Get("overlap"))
	d := time.Duration(hours) * time.Hour
	if err != nil || hours > 24*365 || access.CheckOverlap(d) != nil {
		return 0, errors.New("choose how long the old secret stays valid")
	}
	return d, nil
}

func parseVehicles(text string) (access.Vehicles, error) {
	var ids []vehicle.ID
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \n\r\t", r) }) {
		id, err := vehicle.ParseReportingID(word)
		if err != nil {
			return access.Vehicles{}, fmt.Errorf("vehicle %d of the list: %w", i+1, err)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return access.Vehicles{}, errors.New("name the vehicles, or choose all")
	}
	return access.VehicleSet(ids...), nil
}

// refill returns a form to be shown again, without fields that contain a secret.
func refill(form url.Values) url.Values {
	again := maps.Clone(form)
	maps.DeleteFunc(again, func(_ string, values []string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return access.Redact(v) != v })
	})
	return again
}

// In a new form, every box is chosen.
func chosen(form url.Values, name, value string) bool {
	return form == nil || slices.Contains(form[name], value)
}
