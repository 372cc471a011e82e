package ops

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"slices"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// VehicleList is "all" or vids in ascending order.
type VehicleList struct{ access.Vehicles }

func (v VehicleList) MarshalJSONTo(e *jsontext.Encoder) error {
	if v.All() {
		return e.WriteToken(jsontext.String("all"))
	}
	return json.MarshalEncode(e, slices.Collect(v.Sorted()))
}

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

// VIDs are checked by [vehicle.ParseReportingID].
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

type VehicleCount struct {
	All bool
	N   int
}

func countOf(v access.Vehicles) VehicleCount { return VehicleCount{v.All(), v.Len()} }

func (c VehicleCount) MarshalJSONTo(e *jsontext.Encoder) error {
	if c.All {
		return e.WriteToken(jsontext.String("all"))
	}
	return e.WriteToken(jsontext.Int(int64(c.N)))
}

func (c *VehicleCount) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		c.All = true
		return d.SkipValue()
	}
	return json.UnmarshalDecode(d, &c.N)
}

type NamedCounts map[string]int64

func (r NamedCounts) Total() (n int64) {
	for _, of := range r {
		n += of
	}
	return n
}
