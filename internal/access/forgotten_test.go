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
		t.Errorf("the zero table: got A %t, covered %t, %d in all; want none", f.Has("A"), f.Covers("A"), f.Len())
	}
	f.SetKeys(vidKeyOf(1))
	mac := hmac.New(sha256.New, vidKeyOf(1))
	mac.Write([]byte("A"))
	own := f.Hash("A")
	if want := hex.EncodeToString(mac.Sum(nil)); own.String() != want || own.Short() != want[:16] {
		t.Errorf("the hash of A: got %s, want HMAC-SHA-256 %s", own, want)
	}
	f.Put(access.Tombstone{Vehicle: own, Forgotten: time.Unix(1, 0)})
	if !f.Has("A") || f.Has("B") || f.Len() != 1 {
		t.Errorf("got A %t, B %t, %d in all; want A alone", f.Has("A"), f.Has("B"), f.Len())
	}
	f.SetKeys(vidKeyOf(1), vidKeyOf(2))
	var theirs access.Forgotten
	theirs.SetKeys(vidKeyOf(2))
	if f.Hash("A") != own {
		t.Errorf("the hash under two keys: got %s, want %s of the first", f.Hash("A"), own)
	}
	for here := range access.StateAllowed + 1 {
		for there := range access.StateAllowed + 1 {
			f.Put(access.Tombstone{Vehicle: own, Forgotten: time.Unix(1, 0), State: here})
			f.Put(access.Tombstone{Vehicle: theirs.Hash("A"), Forgotten: time.Unix(3, 0), State: there})
			first := min(here, there)
			if is, ok := f.Find("A"); !ok || is.State != first || f.Has("A") != (first != access.StateAllowed) ||
				f.Covers("A") != (first < access.StateErased) || len(f.All()) != 2 {
				t.Errorf("states %d and %d: got %+v, want state %d", here, there, is, first)
			}
		}
	}
	f.Put(access.Tombstone{Vehicle: own, Forgotten: time.Unix(1, 0), State: access.StateErased, Unread: true})
	if !f.Has("A") || !f.Covers("A") {
		t.Errorf("an unread tombstone: got A %t, covered %t; want true, true", f.Has("A"), f.Covers("A"))
	}
}

func TestParseVehicleHash(t *testing.T) {
	var f access.Forgotten
	f.SetKeys(vidKeyOf(1))
	want := f.Hash("A")
	if got, err := access.ParseVehicleHash(want.String()); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	for _, bad := range []string{"", "ab", want.String() + "00", want.String()[1:] + "g"} {
		if _, err := access.ParseVehicleHash(bad); err == nil {
			t.Errorf("%q: got a hash, want an error", bad)
		}
	}
}
