package ops

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"net/http"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

// VehicleList is "all" or vids in ascending order.
type VehicleList struct{ access.Vehicles }

func (v VehicleList) MarshalJSONTo(e *jsontext.Encoder) error {
	if v.All() {
		return e.WriteToken(jsontext.String("all"))
	}
	return json.MarshalEncode(e, v.Sorted())
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
		return Refusalf(http.StatusBadRequest, `vehicles are "all", or a list of vids`)
	}
	v.Vehicles = access.AllVehicles()
	return nil
}

// VIDs are checked by [vehicle.ParseReportingID].
type VIDs []vehicle.ID

func (v *VIDs) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var texts []string
	err := json.UnmarshalDecode(d, &texts)
	if _, wrong := errors.AsType[*json.SemanticError](err); wrong || err == nil && texts == nil {
		return Refusalf(http.StatusBadRequest, "a list of vids is needed")
	}
	if err != nil {
		return err
	}
	list := make(VIDs, len(texts))
	for i, text := range texts {
		if list[i], err = vehicle.ParseReportingID(text); err != nil {
			return Refusalf(http.StatusBadRequest, "vid %d of a list: %v", i+1, err)
		}
	}
	*v = list
	return nil
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
