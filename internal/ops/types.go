package ops

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"slices"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// VehicleList is a set of vehicles in JSON: "all" or a list of vids.
type VehicleList struct{ access.Vehicles }

// MarshalJSONTo writes the vids in ascending order.
func (v VehicleList) MarshalJSONTo(e *jsontext.Encoder) error {
	if v.All() {
		return e.WriteToken(jsontext.String("all"))
	}
	return json.MarshalEncode(e, slices.Collect(v.Sorted()))
}

// UnmarshalJSONFrom reads what MarshalJSONTo writes. It accepts the vids in any order. For another
// text than "all", or an invalid vid, the error is a [Refusal].
func (v *VehicleList) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '"' {
		var ids VIDs
		if err := ids.UnmarshalJSONFrom(d); err != nil {
			return err
		}
		v.Vehicles = access.VehicleSet(ids...)
		return nil
	}
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	if t.String() != "all" {
		return Refuse(http.StatusBadRequest, `vehicles are "all", or a list of vids`)
	}
	v.Vehicles = access.AllVehicles()
	return nil
}

// VIDs is a list of vids in JSON. Each vid is checked as it is read, by [vehicle.ParseReportingID].
// If one is invalid, the error is a [Refusal].
type VIDs []vehicle.ID

func (v *VIDs) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if k := d.PeekKind(); k != '[' && k != jsontext.KindInvalid {
		return Refuse(http.StatusBadRequest, "a list of vids is needed")
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	list := VIDs{}
	for d.PeekKind() != ']' {
		t, err := d.ReadToken()
		if err != nil {
			return err
		}
		if t.Kind() != '"' {
			return Refuse(http.StatusBadRequest, "vid %d of a list is not a string", len(list)+1)
		}
		id, err := vehicle.ParseReportingID(t.String())
		if err != nil {
			return Refuse(http.StatusBadRequest, "vid %d of a list: %v", len(list)+1, err)
		}
		list = append(list, id)
	}
	*v = list
	_, err := d.ReadToken()
	return err
}

// VehicleCount is the number of vehicles that a grant covers: "all" or a number.
type VehicleCount struct {
	All bool
	N   int
}

func countOf(v access.Vehicles) VehicleCount { return VehicleCount{v.All(), v.Len()} }

// MarshalJSONTo writes "all" or the number.
func (c VehicleCount) MarshalJSONTo(e *jsontext.Encoder) error {
	if c.All {
		return e.WriteToken(jsontext.String("all"))
	}
	return e.WriteToken(jsontext.Int(int64(c.N)))
}

// UnmarshalJSONFrom reads what MarshalJSONTo writes.
func (c *VehicleCount) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		c.All = true
		return d.SkipValue()
	}
	return json.UnmarshalDecode(d, &c.N)
}

// NamedCounts holds numbers of refused samples, or of refused uses of a source's keys, by the reason.
// Entries with the count zero are left out.
type NamedCounts map[string]int64

// Total returns the sum of the counts.
func (r NamedCounts) Total() (n int64) {
	for _, of := range r {
		n += of
	}
	return n
}
