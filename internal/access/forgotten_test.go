package access_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"example.org/carstate/internal/access"
)

func vidKeyOf(b byte) []byte {
	key := make([]byte, 32)
	key[0] = b
	return key
}

func TestForgottenUnderSeveralKeys(t *testing.T) {
	var f access.Forgotten
	if f.Has("A") || f.Covers("A") || f.Len() != 0 {
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
	f.SetKeys(vidKeyOf(1), vidKeyOf(2))
	var theirs access.Forgotten
	theirs.SetKeys(vidKeyOf(2))
	if f.Hash("A") != own {
		t.Error("the own key is the first")
	}
	for here := range access.StateAllowed + 1 {
		for there := range access.StateAllowed + 1 {
			f.Put(access.Tombstone{Vehicle: own, Forgotten: time.Unix(1, 0), State: here})
			f.Put(access.Tombstone{Vehicle: theirs.Hash("A"), Forgotten: time.Unix(3, 0), State: there})
			first := min(here, there)
			if is, ok := f.Find("A"); !ok || is.State != first || f.Has("A") != (first != access.StateAllowed) ||
				f.Covers("A") != (first < access.StateErased) || len(f.All()) != 2 {
				t.Errorf("states %d and %d: found %+v", here, there, is)
			}
		}
	}
	f.Put(access.Tombstone{Vehicle: own, Forgotten: time.Unix(1, 0), State: access.StateErased, Unread: true})
	if !f.Has("A") || !f.Covers("A") {
		t.Error("a tombstone that cannot be read has no force")
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
