package wire

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"time"

	"example.org/carstate/internal/ops"
)

// Expiry is when a credential expires: a time, null for never, or left out.
type Expiry struct {
	given bool
	at    time.Time // zero: never
}

func (x Expiry) IsZero() bool { return !x.given }

// At returns an Expiry. The zero time means never.
func At(t time.Time) Expiry { return Expiry{true, t} }

// Or returns the time, zero for never, or otherwise if it is left out.
func (x Expiry) Or(otherwise time.Time) time.Time {
	if x.given {
		return x.at
	}
	return otherwise
}

func (x Expiry) MarshalJSONTo(e *jsontext.Encoder) error {
	if x.at.IsZero() {
		return e.WriteToken(jsontext.Null)
	}
	return json.MarshalEncode(e, x.at)
}

func (x *Expiry) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	switch t.Kind() {
	case 'n':
		*x = Expiry{given: true}
		return nil
	case '"':
		if at, err := time.Parse(time.RFC3339, t.String()); err == nil && !at.IsZero() {
			*x = Expiry{true, at}
			return nil
		}
	}
	return ops.Refuse(http.StatusBadRequest, "expires_at is null for never, or a time such as 2030-01-31T12:00:00Z")
}
