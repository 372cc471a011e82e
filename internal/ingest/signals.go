package ingest

import (
	"encoding/json/jsontext"
	"slices"
	"strconv"

	"carstate/internal/access"
	"carstate/internal/vehicle"
)

// signals reads the JSON object that holds the signals of a sample, and sets their values in r. It
// counts unknown signals and ignores their values. Each error is a *refusal.
func (d *Decoder) signals(r *vehicle.Readings) error {
	if err := d.expect(jsontext.KindBeginObject, errSignalsType); err != nil {
		return err
	}
	return d.members(func(name []byte) error {
		s, ok := vehicle.SignalByName(name)
		if !ok {
			d.ignored.note(name)
			return d.skip()
		}
		switch s {
		case vehicle.DTCList:
			return d.troubleCodes(r)
		case vehicle.MILOn:
			return d.milOn(r)
		case vehicle.LowVoltageSystemState:
			return d.ignition(r)
		}
		return d.number(s, r)
	})
}

func (d *Decoder) number(s vehicle.Signal, r *vehicle.Readings) error {
	if k := d.json.PeekKind(); k != jsontext.KindNumber && k != jsontext.KindInvalid {
		return refuse(access.WrongType, s.String()+" must be a number")
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return syntax(err)
	}
	// A number beyond float64 becomes an infinity, which Set refuses.
	v, _ := strconv.ParseFloat(string(raw), 64)
	return asRefusal(r.Set(s, v))
}

func (d *Decoder) milOn(r *vehicle.Readings) error {
	switch d.json.PeekKind() {
	case jsontext.KindTrue:
		return d.set(vehicle.MILOn, 1, r)
	case jsontext.KindFalse:
		return d.set(vehicle.MILOn, 0, r)
	case jsontext.KindInvalid:
		_, err := d.json.ReadToken()
		return syntax(err)
	}
	return errMILType
}

// set sets the signal s in r to v. The caller has determined v from the kind of the next JSON
// value, such as 1 for true. So set reads this JSON value only to skip it.
func (d *Decoder) set(s vehicle.Signal, v float64, r *vehicle.Readings) error {
	if _, err := d.json.ReadToken(); err != nil {
		return syntax(err)
	}
	return asRefusal(r.Set(s, v))
}

func (d *Decoder) ignition(r *vehicle.Readings) error {
	if err := d.expect(jsontext.KindString, errPowerType); err != nil {
		return err
	}
	b, err := d.text()
	if err != nil {
		return err
	}
	i, err := vehicle.ParseIgnition(string(b))
	if err != nil {
		return asRefusal(err)
	}
	return asRefusal(r.SetIgnition(i))
}

func (d *Decoder) troubleCodes(r *vehicle.Readings) error {
	if err := d.expect(jsontext.KindBeginArray, errCodesType); err != nil {
		return err
	}
	if _, err := d.json.ReadToken(); err != nil {
		return syntax(err)
	}
	n := 0
	for d.json.PeekKind() != jsontext.KindEndArray {
		if err := d.expect(jsontext.KindString, errCodesType); err != nil {
			return err
		}
		b, err := d.text()
		if err != nil {
			return err
		}
		c, err := vehicle.ParseTroubleCode(string(b))
		if err != nil {
			return asRefusal(err)
		}
		if n == maxCodes {
			return errManyCodes
		}
		d.codes[n] = c
		n++
	}
	if _, err := d.json.ReadToken(); err != nil {
		return syntax(err)
	}
	// The clone has no spare capacity, because the sample may wait long to be stored.
	return asRefusal(r.SetCodes(slices.Clone(d.codes[:n])))
}

// asRefusal converts an error of package vehicle, which says that a value is impossible, into a
// refusal. The text of the error is sent as it is: it names the signal and its range, and repeats
// no input. If err is nil, it returns nil.
func asRefusal(err error) error {
	if err == nil {
		return nil
	}
	return refuse(access.Impossible, err.Error())
}
