//go:build !race

package local

import (
	"flag"
	"testing"

	"example.org/carstate/internal/test/testkit"
)

var (
	powerCuts  = flag.Int64("powercuts", 2_000, "power cuts of TestPowerCuts")
	fullWrites = flag.Int("fullwrites", 150, "writes at which TestDiskFull fills the disk")
	damages    = flag.Int("damages", 1500, "damages of TestDamage")
)

func TestPowerCuts(t *testing.T) {
	testkit.Slow(t, "TestSomePowerCuts does less of the same")
	cutPower(t, *powerCuts, 1)
}

func TestDiskFull(t *testing.T) {
	testkit.Slow(t, "it fills the disk at 150 writes")
	fillDisks(t, *fullWrites)
}

func TestDamage(t *testing.T) {
	testkit.Slow(t, "it damages 1,500 files")
	damage(t, *damages)
}
