package access_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/vehicle"
)

func vidKeyOf(b byte) []byte {
	key := make([]byte, 32)
	key[0] = b
	return key
}

func TestForgottenUnderSeveralKeys(t *testing.T) {
	var f access.Forgotten
	if f.Has("A") || f.Covers("A", 1, 1) || f.Len() != 0 {
		t.Error("the zero table knows of a vehicle")
	}
	f.SetKeys(vidKeyOf(1))
	mac := hmac.New(sha256.New, vidKeyOf(1))
	mac.Write([]byte("A"))
	own := f.Hash("A")
	if want := hex.EncodeToString(mac.Sum(nil)); own.String() != want || own.Short() != want[:16] {
		t.Errorf("the hash is %s, want HMAC-SHA-256 %s", own, want)
	}
	f.Put(access.Tombstone{Vehicle: own, Forgotten: time.Unix(1, 0)})
	if !f.Has("A") || f.Has("B") || f.Len() != 1 {
		t.Error("A is forgotten, and nobody else")
	}
	// Allowed again here, but forgotten in the other installation.
	f.Put(access.Tombstone{Vehicle: own, Forgotten: time.Unix(1, 0), Lifted: time.Unix(2, 0), Opened: true, Stale: 7, Made: 3})
	if f.Has("A") || f.Len() != 0 {
		t.Error("A was allowed again")
	}
	if !f.Covers("A", 7, 3) || f.Covers("A", 8, 3) || f.Covers("A", 7, 4) {
		t.Error("of one that was allowed again, samples count from the next place on")
	}
	f.SetKeys(vidKeyOf(1), vidKeyOf(2))
	var theirs access.Forgotten
	theirs.SetKeys(vidKeyOf(2))
	f.Put(access.Tombstone{Vehicle: theirs.Hash("A"), Forgotten: time.Unix(3, 0)})
	if f.Hash("A") != own {
		t.Error("the own key is the first")
	}
	if !f.Has("A") || !f.Covers("A", 99, 3) || len(f.All()) != 2 {
		t.Error("what either installation has forgotten is forgotten")
	}
	// After the first of the two steps, telemetry is still refused.
	f.Put(access.Tombstone{Vehicle: theirs.Hash("A"), Forgotten: time.Unix(3, 0), Lifted: time.Unix(4, 0), Stale: 9, Made: 3})
	if !f.Has("A") || f.Covers("A", 10, 3) {
		t.Error("half allowed: what comes now counts, and is not taken in")
	}
}

func TestParseVehicleHash(t *testing.T) {
	var f access.Forgotten
	f.SetKeys(vidKeyOf(1))
	want := f.Hash("A")
	if got, err := access.ParseVehicleHash(want.String()); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "ab", want.String() + "00", want.String()[1:] + "g"} {
		if _, err := access.ParseVehicleHash(bad); err == nil {
			t.Errorf("%q is a hash", bad)
		}
	}
}

func TestForgottenConcurrently(t *testing.T) {
	var f access.Forgotten
	f.SetKeys(vidKeyOf(1))
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for i := range 200 {
				id := vehicle.ID(fmt.Sprint("Car", i))
				f.Put(access.Tombstone{Vehicle: f.Hash(id)})
				if !f.Has(id) {
					t.Error("what was put is not there")
				}
			}
		})
	}
	running.Wait()
	if f.Len() != 200 {
		t.Errorf("%d are forgotten", f.Len())
	}
}
