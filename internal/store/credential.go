package store

import (
	"cmp"
	"context"
	"encoding/json/v2"
	"fmt"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/store/codec"
)

type credentialRecord struct {
	access.Credential
	Vehicles grantedRecord `json:"vehicles,omitzero"`
	Rate     string        `json:"rate,omitzero"`
	NoRate   bool          `json:"no_rate,omitzero"` // no limit; Rate is "", as in earlier versions
	OnChange string        `json:"on_change,omitzero"`
	Format   string        `json:"format,omitzero"`
}

// Create may use the name of a removed source or operator again, but not that of a revoked token.
func (k *RecordStore) Create(ctx context.Context, c access.Credential) error {
	subject := subjectOf(c.Kind, c.Name)
	return k.change(ctx, codec.StreamOf(subject), subject, func(is Record) ([]Write, error) {
		var before grantedRecord
		c.Number = 0
		if is.Seq != 0 {
			old, granted, err := decodeCredential(is)
			if err != nil {
				return nil, err
			}
			c.Number, before = old.Number, granted
			// An earlier attempt of this call was stored, but its response lost, and another writer
			// has changed the record since.
			if old.Hash == c.Hash {
				return nil, nil
			}
			if old.Ended.IsZero() || c.Kind.Policy().Listed {
				return nil, access.ErrExists
			}
		}
		return packCredential(c, before)
	})
}

func (k *RecordStore) Update(
	ctx context.Context, kind access.Kind, name string, change func(*access.Credential) error,
) (access.Credential, error) {
	return k.update(ctx, subjectOf(kind, name), func(c *access.Credential) error {
		if !c.Ended.IsZero() && !kind.Policy().Listed {
			return access.ErrNotFound
		}
		return change(c)
	})
}

func (k *RecordStore) update(
	ctx context.Context, subject string, change func(*access.Credential) error,
) (c access.Credential, err error) {
	err = k.change(ctx, codec.StreamOf(subject), subject, func(is Record) (_ []Write, err error) {
		if is.Seq == 0 {
			return nil, access.ErrNotFound
		}
		var granted grantedRecord
		if c, granted, err = readCredential(ctx, k.engine, is); err != nil {
			return nil, err
		}
		if err := change(&c); err != nil {
			return nil, err
		}
		return packCredential(c, granted)
	})
	return c, err
}

// packCredential returns the writes of a credential, its own record last. It empties set records of
// the grant before that the new one does not replace: a forget would not find the vehicles in them.
func packCredential(c access.Credential, before grantedRecord) ([]Write, error) {
	subject := subjectOf(c.Kind, c.Name)
	granted, sets := packVehicles(subject, c.Vehicles)
	for n := granted.Sets; n < before.Sets; n++ {
		sets, _ = AppendJSON(sets, setSubject(subject, n), setRecord{}) // cannot fail, as in packVehicles
	}
	r := credentialRecord{
		Credential: c, Vehicles: granted, Rate: c.Rate.String(), NoRate: c.Rate == access.NoRate,
		OnChange: c.OnChange.String(), Format: c.Format.String(),
	}
	if r.NoRate {
		r.Rate = ""
	}
	return AppendJSON(sets, subject, r)
}

// decodeCredential leaves the vehicles in granted. The error matches [codec.ErrDamaged]. The number
// of a source is the sequence of its first record; later records repeat it.
func decodeCredential(is Record) (c access.Credential, granted grantedRecord, err error) {
	var r credentialRecord
	if json.Unmarshal(is.Body, &r) != nil || subjectOf(r.Kind, r.Name) != is.Subject || r.Hash == (access.Hash{}) {
		return c, granted, fmt.Errorf("%w: a credential", codec.ErrDamaged)
	}
	c = r.Credential
	if c.Kind == access.SourceKind && c.Number == 0 {
		c.Number = uint32(is.Seq)
	}
	var rate, onChange, mapping error
	if c.Rate, rate = access.ParseRate(r.Rate); r.NoRate {
		c.Rate = access.NoRate
	}
	c.OnChange, onChange = access.ParseOnChange(r.OnChange)
	c.Format, mapping = format.Parse(r.Format)
	if err := cmp.Or(rate, onChange, mapping, c.Check(), r.Vehicles.check(r.Kind)); err != nil {
		return c, r.Vehicles, Unfit{r.Kind.Policy().Noun, err}
	}
	return c, r.Vehicles, nil
}

func subjectOf(kind access.Kind, name string) string { return kind.Policy().Noun + "." + name }
