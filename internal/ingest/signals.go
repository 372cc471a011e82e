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
	return d.members(errSignalsType, func(name []byte) error {
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
	if d.json.PeekKind() != jsontext.KindTrue {
		if err := d.expect(jsontext.KindFalse, errMILType); err != nil {
			return err
		}
	}
	on, err := d.json.ReadToken()
	if err != nil {
		return syntax(err)
	}
	v := 0.0
	if on.Bool() {
		v = 1
	}
	return asRefusal(r.Set(vehicle.MILOn, v))
}

func (d *Decoder) ignition(r *vehicle.Readings) error {
	b, err := d.text(errPowerType)
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
		b, err := d.text(errCodesType)
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
