// Package storetest tests what every engine must do, through the interface of package store alone:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t testing.TB, c store.Config) store.Engine {
//			e, err := local.Open(t.Context(), local.Config{Config: c})
//			if err != nil {
//				t.Fatal(err)
//			}
//			return e
//		})
//	}
package storetest

import (
	"testing"

	"example.org/carstate/internal/store"
)

func Run(t *testing.T, open Open) {
	RunShort(t, open)
	RunLong(t, open)
}

// RunShort has those tests of [Run] that need only one store each.
func RunShort(t *testing.T, open Open) {
	for name, run := range ofEngine {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, opened(t, open, store.Config{DataDir: t.TempDir(), Partitions: 4}))
		})
	}
}

// RunLong has those with restarts, restores and clocks that are set back or ahead.
func RunLong(t *testing.T, open Open) {
	for name, run := range ofStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open)
		})
	}
}

// RunOn runs the tests of RunShort one after the other, for stores that are costly to create. open
// returns an empty store each time.
func RunOn(t *testing.T, open func(t *testing.T) store.Engine) {
	for name, run := range ofEngine {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

// ofEngine's tests run on one empty engine with four partitions.
var ofEngine = map[string]func(*testing.T, store.Engine){
	"samples come back in order":          samplesInOrder,
	"an owner gets the checkpoints":       checkpointsKept,
	"only the last owner commits":         fencing,
	"a partition is released":             releasing,
	"records change by compare-and-set":   recordsChange,
	"tokens are stored and change":        tokensChange,
	"large vehicle sets":                  largeSets,
	"racing updates all count":            racingUpdates,
	"sources and operators change":        namesChange,
	"secrets rotate on every node":        secretsRotate,
	"audit keeps the order":               auditOrder,
	"the recent samples of one vehicle":   recentOfOne,
	"recent samples end in time":          recentEndsInTime,
	"roads are kept, and known to others": roadsKept,
	"roads are forgotten":                 roadsForgotten,
}

// ofStores' tests open engines themselves.
var ofStores = map[string]func(*testing.T, Open){
	"recent samples of long ago":             recentLooksBack,
	"answers follow":                         answersFollow,
	"a backup leaves nothing out":            backupOfAll,
	"a damaged checkpoint":                   checkpointDamaged,
	"usage survives restarts":                usageSurvivesRestarts,
	"a forgotten vehicle stays forgotten":    forgottenStays,
	"a forget that was cut off is finished":  forgetCutOff,
	"a backup is restored into an empty one": restoreIntoEmpty,
	"a restore knows who made the backup":    restoreAuthenticates,
	"only an empty service is restored":      restoreOnlyEmpty,
	"a backup while all changes is whole":    backupWhileServing,
	"malformed roads spoil nothing":          backupWithoutMalformedRoads,
	"a restart keeps roads":                  restartKeepsRoads,
	"a restore keeps roads":                  restoreKeepsRoads,
}
