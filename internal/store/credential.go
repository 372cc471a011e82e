package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/format"
	"example.org/carstate/internal/store/codec"
)

type credentialRecord struct {
	Kind       access.Kind       `json:"kind"`
	Name       string            `json:"name"`
	Hash       []byte            `json:"hash"`
	Earlier    []earlierRecord   `json:"earlier,omitempty"`
	Vehicles   grantedRecord     `json:"vehicles,omitzero"`
	Created    time.Time         `json:"created"`
	Rotated    time.Time         `json:"rotated,omitzero"`
	Expires    time.Time         `json:"expires,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
	Developer  string            `json:"developer,omitzero"`
	Operations access.Operations `json:"operations,omitzero"`
	Rate       string            `json:"rate,omitzero"`
	NoRate     bool              `json:"no_rate,omitzero"` // beside an empty rate, which was no limit in earlier versions
	Strict     bool              `json:"strict,omitzero"`
	OnChange   string            `json:"on_change,omitzero"`
	Number     uint32            `json:"number,omitzero"` // 0 in the first record of a source, see decodeCredential
	ReadOnly   bool              `json:"read_only,omitzero"`
	Format     string            `json:"format,omitzero"`
	Crowd      *bool             `json:"trusted_crowd,omitzero"`
}

type earlierRecord struct {
	Hash  []byte    `json:"hash"`
	Until time.Time `json:"until"`
}

// The name of a removed source or operator may be used again; that of a revoked token may not.
func (k *RecordStore) Create(ctx context.Context, c access.Credential) error {
	subject := subjectOf(c.Kind, c.Name)
	tried := false
	return k.change(ctx, codec.StreamOf(subject), subject, func(is Record) ([]Write, error) {
		again := tried
		tried = true
		var before grantedRecord
		c.Number = 0
		if is.Seq != 0 {
			old, granted, err := decodeCredential(is)
			if err != nil {
				return nil, err
			}
			c.Number, before = old.Number, granted
			// The response of the first attempt was lost, and another writer has changed the record
			// since.
			if again && old.Hash == c.Hash {
				return nil, nil
			}
			if old.Ended.IsZero() || c.Kind.Policy().Listed {
				return nil, access.ErrExists
			}
		}
		return packCredential(c, before)
	})
}

// change may run several times. The error is [access.ErrNotFound] for a removed source or operator;
// a revoked token can be changed.
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
	stream := codec.StreamOf(subject)
	err = k.change(ctx, stream, subject, func(is Record) ([]Write, error) {
		if is.Seq == 0 {
			return nil, access.ErrNotFound
		}
		was, granted, err := decodeCredential(is)
		if err != nil {
			return nil, err
		}
		c = was
		if c.Vehicles, err = readVehicles(ctx, k.engine, stream, c.Kind.Policy().Noun+"set", c.Name, granted); err != nil {
			return nil, err
		}
		if err := change(&c); err != nil {
			return nil, err
		}
		return packCredential(c, granted)
	})
	return c, err
}

// packCredential empties the set records that the grant before has beyond the new one, because a
// forget would not find the vehicles in them. The credential's own record is the last write.
func packCredential(c access.Credential, before grantedRecord) ([]Write, error) {
	prefix := c.Kind.Policy().Noun + "set"
	granted, sets, err := packVehicles(prefix, c.Name, c.Vehicles)
	if err != nil {
		return nil, err
	}
	var emptied []Write
	for n := granted.Sets; n < before.Sets; n++ {
		if emptied, err = AppendJSON(emptied, setSubject(prefix, c.Name, n), setRecord{}); err != nil {
			return nil, err
		}
	}
	sets = append(emptied, sets...)
	var earlier []earlierRecord
	for _, e := range c.Earlier {
		earlier = append(earlier, earlierRecord{e.Hash[:], e.Until})
	}
	rate, none := c.Rate.String(), c.Rate == access.NoRate
	if none {
		rate = ""
	}
	return AppendJSON(sets, subjectOf(c.Kind, c.Name), credentialRecord{
		Kind: c.Kind, Name: c.Name, Hash: c.Hash[:], Earlier: earlier, Vehicles: granted,
		Created: c.Created, Rotated: c.Rotated, Expires: c.Expires, Ended: c.Ended,
		Developer: c.Developer, Operations: c.Operations, Rate: rate, NoRate: none, Strict: c.Strict,
		OnChange: c.OnChange.String(), Number: c.Number, ReadOnly: c.ReadOnly,
		Format: c.Format.String(), Crowd: c.TrustedCrowd,
	})
}

// The credential comes without its vehicles. The error matches [codec.ErrDamaged]. The number of a
// source is the sequence of its first record; later records repeat it.
func decodeCredential(is Record) (c access.Credential, granted grantedRecord, err error) {
	var r credentialRecord
	ok := json.Unmarshal(is.Body, &r) == nil && subjectOf(r.Kind, r.Name) == is.Subject &&
		len(r.Hash) == len(access.Hash{})
	for _, e := range r.Earlier {
		ok = ok && len(e.Hash) == len(access.Hash{})
	}
	if !ok {
		return c, r.Vehicles, fmt.Errorf("%w: a credential", codec.ErrDamaged)
	}
	c = access.Credential{
		Kind: r.Kind, Name: r.Name, Hash: access.Hash(r.Hash),
		Created: r.Created, Rotated: r.Rotated, Expires: r.Expires, Ended: r.Ended,
		Developer: r.Developer, Operations: r.Operations, Strict: r.Strict, Number: r.Number, ReadOnly: r.ReadOnly,
		TrustedCrowd: r.Crowd,
	}
	if c.Kind == access.SourceKind && c.Number == 0 {
		c.Number = uint32(is.Seq)
	}
	for _, e := range r.Earlier {
		c.Earlier = append(c.Earlier, access.Earlier{Hash: access.Hash(e.Hash), Until: e.Until})
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
