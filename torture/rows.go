package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"carstate/torture/clocks"
	"carstate/torture/corrupt"
	"carstate/torture/full"
	"carstate/torture/hostile"
	"carstate/torture/kill"
	"carstate/torture/matrix"
	"carstate/torture/nodes"
	"carstate/torture/overload"
	"carstate/torture/power"
	"carstate/torture/row"
	"carstate/torture/secrets"
	"carstate/torture/soak"
	"carstate/torture/strangers"
)

// rows are all there are, in the order of their numbers.
var rows = []row.Row{
	kill.Row,
	power.Row,
	full.Row,
	nodes.Row,
	overload.Row,
	hostile.Row,
	strangers.Row,
	corrupt.Row,
	clocks.Row,
	secrets.Row,
	matrix.Row,
	soak.Row,
}

// rowNames lists the rows that run unless others are named.
func rowNames() string {
	var names []string
	for _, r := range rows {
		if !r.FlagOnly {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, ",")
}

// choose finds rows by name. They keep their own order.
func choose(names string) ([]row.Row, error) {
	asked := strings.Split(names, ",")
	var chosen []row.Row
	for _, r := range rows {
		if slices.Contains(asked, r.Name) {
			chosen = append(chosen, r)
		}
	}
	for _, name := range asked {
		if !slices.ContainsFunc(rows, func(r row.Row) bool { return r.Name == name }) {
			return nil, fmt.Errorf("there is no row %q: choose from %s", name, allNames())
		}
	}
	return chosen, nil
}

func allNames() string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Name
	}
	return strings.Join(names, ",")
}

// counts are the counts that the command line gives by row: "kill=1000,power=200".
func counts(text string) (map[string]int, error) {
	given := make(map[string]int)
	if text == "" {
		return given, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || !slices.ContainsFunc(rows, func(r row.Row) bool { return r.Name == name }) {
			return nil, fmt.Errorf("-count wants ROW=N with N of 1 or more, such as kill=1000; the rows are %s", allNames())
		}
		given[name] = n
	}
	return given, nil
}
