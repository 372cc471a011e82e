package roadmap

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"example.org/carstate/internal/road"
)

var errBox = errors.New("bbox is west,south,east,north in degrees: longitudes from -180 to 180, latitudes from " +
	"-90 to 90, south at most north; west is greater than east across the date line")

// Asked parses "bbox", west,south,east,north in degrees, by default all of the earth, and "limit",
// by default [MaxStretches]. An error may be shown to the caller.
func Asked(query url.Values) (box road.Box, limit int, err error) {
	box, limit = road.World, MaxStretches
	if query.Has("bbox") {
		if box, err = parseBox(query["bbox"]); err != nil {
			return box, 0, err
		}
	}
	if query.Has("limit") {
		limit, err = strconv.Atoi(query.Get("limit"))
		if err != nil || len(query["limit"]) > 1 || limit < 1 || limit > MaxStretches {
			return box, 0, fmt.Errorf("limit is a number from 1 to %d", MaxStretches)
		}
	}
	return box, limit, nil
}

func parseBox(texts []string) (b road.Box, err error) {
	sides := strings.Split(texts[0], ",")
	if len(texts) != 1 || len(sides) != 4 {
		return b, errBox
	}
	for i, to := range []*float64{&b.West, &b.South, &b.East, &b.North} {
		most := 180 - 90*float64(i%2)
		v, err := strconv.ParseFloat(sides[i], 64)
		if err != nil || !(-most <= v && v <= most) { // so written, it refuses NaN
			return road.Box{}, errBox
		}
		*to = v
	}
	if b.South > b.North {
		return road.Box{}, errBox
	}
	return b, nil
}
