package ops

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// VehicleList is a set of vehicles on the wire: "all", or a list of vids.
type VehicleList struct{ access.Vehicles }

// MarshalJSONTo writes the vehicles in the order of their text, one by one.
func (v VehicleList) MarshalJSONTo(e *jsontext.Encoder) error {
	if v.All() {
		return e.WriteToken(jsontext.String("all"))
	}
	if err := e.WriteToken(jsontext.BeginArray); err != nil {
		return err
	}
	for id := range v.Sorted() {
		if err := e.WriteToken(jsontext.String(string(id))); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndArray)
}

// UnmarshalJSONFrom reads what MarshalJSONTo writes, in any order.
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

// VIDs are a list of vehicles on the wire. Each is checked as it arrives.
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
			return Refuse(http.StatusBadRequest, "vid %d of a list is no string", len(list)+1)
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

// VehicleCount says how many vehicles a record names: "all", or a number.
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

// CallCounts are numbers of calls on the wire: by operation, then by outcome,
// without the outcomes that never were.
type CallCounts struct{ access.Calls }

// MarshalJSONTo writes operations and outcomes in their order.
func (c CallCounts) MarshalJSONTo(e *jsontext.Encoder) error {
	tokens := []jsontext.Token{jsontext.BeginObject}
	for op, name := range access.AllOperations.Names() {
		tokens = append(tokens, jsontext.String(name), jsontext.BeginObject)
		for o, n := range c.Calls[op] {
			if n != 0 {
				tokens = append(tokens, jsontext.String(access.Outcome(o).String()), jsontext.Int(n))
			}
		}
		tokens = append(tokens, jsontext.EndObject)
	}
	for _, t := range append(tokens, jsontext.EndObject) {
		if err := e.WriteToken(t); err != nil {
			return err
		}
	}
	return nil
}

// UnmarshalJSONFrom reads what MarshalJSONTo writes. What it does not know, from
// a newer service, is left out.
func (c *CallCounts) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var counts map[string]map[string]int64
	if err := json.UnmarshalDecode(d, &counts); err != nil {
		return err
	}
	for op, name := range access.AllOperations.Names() {
		for o := range c.Calls[op] {
			c.Calls[op][o] = counts[name][access.Outcome(o).String()]
		}
	}
	return nil
}

// NamedCounts are numbers of samples by the reason why they were refused, or of ignored signals by
// name. What never was is left out.
type NamedCounts map[string]int64

// MarshalJSONTo writes the names in their order.
func (r NamedCounts) MarshalJSONTo(e *jsontext.Encoder) error {
	return json.MarshalEncode(e, map[string]int64(r), json.Deterministic(true))
}

// Total adds them up.
func (r NamedCounts) Total() (n int64) {
	for _, of := range r {
		n += of
	}
	return n
}
