package access

import (
	"fmt"
	"strings"
)

// Operations is a set of query operations, the questions that a token may ask.
type Operations uint8

// The two query operations: one asks for the driving state of a car, the other for the state of its
// throttle.
const (
	CarDrivingState Operations = 1 << iota
	ThrottleSystem

	AllOperations = CarDrivingState | ThrottleSystem
)

var operationNames = []struct {
	op   Operations
	name string
}{
	{CarDrivingState, "car_driving_state"},
	{ThrottleSystem, "throttle_system"},
}

// Has reports whether o contains every operation in op.
func (o Operations) Has(op Operations) bool { return o&op == op }

// Names returns the names of the operations in the set.
func (o Operations) Names() []string {
	var names []string
	for _, e := range operationNames {
		if o.Has(e.op) {
			names = append(names, e.name)
		}
	}
	return names
}

// ParseOperations parses names of operations. An empty list is an error.
func ParseOperations(names []string) (Operations, error) {
	var o Operations
next:
	for _, n := range names {
		for _, e := range operationNames {
			if n == e.name {
				o |= e.op
				continue next
			}
		}
		return 0, fmt.Errorf("unknown operation: the operations are %s", strings.Join(AllOperations.Names(), ", "))
	}
	if o == 0 {
		return 0, fmt.Errorf("at least one operation is needed: %s", strings.Join(AllOperations.Names(), ", "))
	}
	return o, nil
}
