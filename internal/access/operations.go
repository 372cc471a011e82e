package access

import (
	"fmt"
	"slices"
	"strings"
)

// Operations is a set of query operations, the questions that a token may ask.
type Operations uint8

// The two query operations, about the driving state of a car and about its throttle.
const (
	CarDrivingState Operations = 1 << iota
	ThrottleSystem

	AllOperations = CarDrivingState | ThrottleSystem
)

// operationNames has the names of the operations, in the order of their bits.
var operationNames = []string{"car_driving_state", "throttle_system"}

// Has reports whether o contains every operation in op.
func (o Operations) Has(op Operations) bool { return o&op == op }

// Names returns the names of the operations in the set, in the order of the constants.
func (o Operations) Names() []string {
	var names []string
	for i, name := range operationNames {
		if o.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// ParseOperations returns the set of the operations with these names. An empty list and an unknown
// name are errors.
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
