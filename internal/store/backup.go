package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/road"
	"carstate/internal/store/backupfile"
	"carstate/internal/store/codec"
	"carstate/internal/vehicle"
)

// backedUp lists what goes into a backup, in this order, before the roads: a reader
// knows what is forgotten and what was revoked before anything else. Left out are
// telemetry, with the cursors that count in it, the audit, and heartbeats. Each record
// is as it was at some moment between the beginning and the end of the backup.
var backedUp = []struct {
	stream   string
	subjects []string
}{
	{codec.Sources, []string{codec.VIDKeysSubject, "tombstone.*", "source.*", "sourceset.*.*", "operator.*"}},
	{codec.Tokens, []string{"token.*", "tokenset.*.*", "tokenuse.*", "tokenuse.*.*"}},
	{codec.States, []string{"state.*.*"}},
}

// Backup writes all that is stored but telemetry, audit and what a node makes for
// itself, while the service goes on. It says how many records there were.
func (k *Keeper) Backup(ctx context.Context, w io.Writer, version string) (records int, err error) {
	b, err := backupfile.NewWriter(w, backupfile.Header{Version: version, Began: k.now().UTC().Truncate(time.Millisecond), Partitions: k.engine.Partitions()})
	if err != nil {
		return 0, err
	}
	k.engine.Settle(ctx)
	for _, part := range backedUp {
		err := k.engine.Scan(ctx, part.stream, part.subjects, func(r Record) error {
			if strings.HasPrefix(r.Subject, "state.") && codec.IsMarker(r.Body) {
				return nil // it would name who is forgotten
			}
			return b.Add(r.Subject, r.Sealed)
		})
		if err != nil {
			return 0, fmt.Errorf("the backup of %s failed: %w", part.stream, err)
		}
	}
	if err := k.backUpRoads(ctx, b); err != nil {
		return 0, err
	}
	return b.Records(), b.End()
}

// CheckBackup reads a backup to its end and says what is in it. It returns an
// error if any byte of it is not what was written, or cannot be understood.
func CheckBackup(r io.Reader) (access.BackupInfo, error) {
	b, header, err := backupfile.Open(r)
	if err != nil {
		return access.BackupInfo{}, err
	}
	parts := make(map[string]setsSeen)
	info := access.BackupInfo{Version: header.Version, Began: header.Began, Partitions: header.Partitions, Kinds: make(map[string]int)}
	for {
		r, err := b.Next()
		if err == io.EOF {
			return info, nil
		}
		if err != nil {
			return info, err
		}
		kind, rest, _ := strings.Cut(r.Subject, ".")
		if err := checkRecord(kind, rest, r.Body, parts); err != nil {
			return info, err
		}
		info.Records++
		info.Kinds[kind]++
	}
}

// namesOf has the kinds of records, and how many names follow the kind in a subject.
var namesOf = map[string]struct{ least, most int }{
	codec.VIDKeysSubject: {0, 0}, "tombstone": {1, 1}, "source": {1, 1}, "operator": {1, 1}, "token": {1, 1},
	"sourceset": {2, 2}, "tokenset": {2, 2}, "tokenuse": {1, 2}, "state": {2, 2}, "road": {1, 1},
}

// nameLetters are the characters of the names in subjects.
const nameLetters = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

// validNames reports whether what follows the kind in a subject can be stored under
// that subject again.
func validNames(kind, rest string) bool {
	var names []string
	if rest != "" {
		names = strings.Split(rest, ".")
	}
	for _, name := range names {
		if name == "" || len(name) > vehicle.MaxReportingID || strings.Trim(name, nameLetters) != "" {
			return false
		}
	}
	n := namesOf[kind]
	if len(names) < n.least || len(names) > n.most {
		return false
	}
	return kind != "state" || vehicle.CheckID(names[1]) == nil
}

// setsSeen counts the parts of a large set.
type setsSeen struct {
	mark string
	n    int
}

// checkRecord looks whether a record of a backup is understood, and whether what
// it refers to was there.
func checkRecord(kind, rest string, body []byte, parts map[string]setsSeen) (err error) {
	if _, ok := namesOf[kind]; !ok {
		return fmt.Errorf("%w (it holds records of a kind that is not known here)", backupfile.ErrNewer)
	}
	var granted grantedRecord
	owner := rest // what the record itself says of its name
	switch kind {
	case "state":
		_, err = codec.DecodeState(body)
	case "road":
		var tile road.Tile
		if tile, err = road.ParseTile(rest); err == nil {
			err = new(road.Map).Load(tile, body)
		}
	case "tombstone":
		var t access.Tombstone
		t, err = decodeTombstone(body)
		owner = t.Vehicle.String()
	case codec.VIDKeysSubject:
		_, err = decodeVIDKeys(body)
	case "token", "source", "operator":
		var c credentialRecord
		c, err = decodeCredential(kind+"."+rest, body)
		granted = c.Vehicles
	case "tokenuse":
		err = json.Unmarshal(body, new(usageRecord))
	case "tokenset", "sourceset":
		var part setRecord
		if err = json.Unmarshal(body, &part); err == nil {
			owner, _, _ := strings.Cut(rest, ".")
			seen := parts[kind+owner]
			if seen.mark != part.Set {
				seen = setsSeen{mark: part.Set}
			}
			seen.n++
			parts[kind+owner] = seen
		}
	}
	if owner != rest || !validNames(kind, rest) {
		err = cmp.Or(err, codec.ErrDamaged)
	}
	if granted.Sets > 0 && parts[kind+"set"+rest] != (setsSeen{granted.Set, granted.Sets}) {
		err = codec.ErrDamaged
	}
	switch {
	case errors.Is(err, codec.ErrNewer):
		return fmt.Errorf("%w (%w)", backupfile.ErrNewer, err)
	case err != nil:
		return backupfile.ErrTorn
	}
	return nil
}
