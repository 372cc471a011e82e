package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/carstate/torture/clocks"
	"example.org/carstate/torture/defects"
	"example.org/carstate/torture/engine"
	"example.org/carstate/torture/hostile"
	"example.org/carstate/torture/kill"
	"example.org/carstate/torture/matrix"
	"example.org/carstate/torture/nodes"
	"example.org/carstate/torture/onekey"
	"example.org/carstate/torture/overload"
	"example.org/carstate/torture/row"
	"example.org/carstate/torture/secrets"
	"example.org/carstate/torture/soak"
	"example.org/carstate/torture/strangers"
)

var rows = withControls(
	kill.Row,
	engine.Power,
	engine.Full,
	nodes.Row,
	overload.Row,
	hostile.Row,
	strangers.Row,
	engine.Damage,
	clocks.Row,
	secrets.Row,
	matrix.Row,
	soak.Row,
	onekey.Row,
)

func withControls(rows ...row.Row) []row.Row {
	for i := range rows {
		rows[i].Controls = defects.Controls(rows[i].Name)
	}
	return rows
}

func names(all bool) string {
	var list []string
	for _, r := range rows {
		if all || !r.FlagOnly {
			list = append(list, r.Name)
		}
	}
	return strings.Join(list, ",")
}

func find(name string) (row.Row, error) {
	if i := slices.IndexFunc(rows, func(r row.Row) bool { return r.Name == name }); i >= 0 {
		return rows[i], nil
	}
	return row.Row{}, fmt.Errorf("there is no row %q: choose from %s", name, names(true))
}

func choose(names string) ([]row.Row, error) {
	wanted := strings.Split(names, ",")
	for _, name := range wanted {
		if _, err := find(name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r row.Row) bool { return !slices.Contains(wanted, r.Name) }), nil
}

func counts(text string) (map[string]int, error) {
	given := make(map[string]int)
	for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(pair, "=")
		if _, err := find(name); err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-count wants ROW=N with N of 1 or more, such as kill=1000")
		}
		given[name] = n
	}
	return given, nil
}
