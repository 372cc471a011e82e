package access

import (
	"fmt"
	"slices"
	"strings"
)

type Operations uint8

const (
	CarDrivingState Operations = 1 << iota
	ThrottleSystem

	AllOperations = CarDrivingState | ThrottleSystem
)

// operationNames is in the order of the bits.
var operationNames = []string{"car_driving_state", "throttle_system"}

func (o Operations) Has(op Operations) bool { return o&op == op }

func (o Operations) Names() []string {
	var names []string
	for i, name := range operationNames {
		if o.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

func ParseOperations(names []string) (Operations, error) {
	var o Operations
	for _, n := range names {
		i := slices.Index(operationNames, n)
		if i < 0 {
			return 0, fmt.Errorf("unknown operation: the operations are %s", strings.Join(operationNames, ", "))
		}
		o |= 1 << i
	}
	if o == 0 {
		return 0, fmt.Errorf("at least one operation is needed: %s", strings.Join(operationNames, ", "))
	}
	return o, nil
}
