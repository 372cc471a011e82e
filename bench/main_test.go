package main

import (
	"testing"
)

func TestChoose(t *testing.T) {
	all, err := choose(partNames())
	if err != nil || len(all) != len(parts) {
		t.Errorf("all parts: got %d, %v", len(all), err)
	}
	if _, err := choose("query,tea"); err == nil {
		t.Error("a part that does not exist was accepted")
	}
}
