package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store/backupfile"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// backedUp lists the records that a backup contains, in the order of the file. Each entry is a
// stream with patterns for the subjects (keys) of its records; in a pattern, * stands for one name.
// Tombstones come before states, so that a reader knows all forgotten vehicles before it reads the
// first state. The states and the profiles of roads are not in this list; they follow at the end. A
// backup does not contain telemetry, the cursors (which are positions in telemetry), the audit and
// the backup key.
//
// A backup is not a snapshot of one moment: each record and each state is copied at some moment between
// the start and the end of the backup.
var backedUp = []struct {
	stream   string
	subjects []string
}{
	{codec.Sources, []string{codec.VIDKeysSubject, "tombstone.*", "source.*", "sourceset.*.*", "operator.*"}},
	{codec.Tokens, []string{"token.*", "tokenset.*.*", "tokenuse.*.*"}},
}

// Backup writes a backup (see backedUp) to w while the service runs, and returns the number of its
// records. version is that of the carstate that writes it. After an error, the data in w is not a
// complete backup, and CheckBackup refuses it.
func (k *RecordStore) Backup(ctx context.Context, w io.Writer, version string) (records int, err error) {
	key, err := k.BackupKey(ctx)
	if err != nil {
		return 0, err
	}
	header := backupfile.Header{
		Version: version, Began: k.now().UTC().Truncate(time.Millisecond), Partitions: k.engine.Partitions(),
	}
	b, err := backupfile.NewWriter(w, header, key)
	if err != nil {
		return 0, err
	}
	for _, part := range backedUp {
		err := k.engine.Scan(ctx, part.stream, part.subjects, func(r Record) error {
			if isEmptied(r) {
				return nil
			}
			return b.Add(r.Subject, r.Sealed)
		})
		if err != nil {
			return 0, fmt.Errorf("cannot back up %s: %w", part.stream, err)
		}
	}
	for p := range k.engine.Partitions() {
		if err := k.backUpStates(ctx, b, p); err != nil {
			return 0, fmt.Errorf("cannot back up the states: %w", err)
		}
	}
	if err := k.backUpRoads(ctx, b); err != nil {
		return 0, err
	}
	return b.Records(), b.End()
}

// backUpStates writes the states of partition p as its owner has them. If another process becomes the
// owner, it begins again: a backup may have several states of a vehicle.
func (k *RecordStore) backUpStates(ctx context.Context, b *backupfile.Writer, p int) error {
	owner := uint64(0)
	for next := 0; ; {
		r, err := k.ask(ctx, p, &Question{Kind: AskStates, From: next})
		if err != nil {
			return err
		}
		if next > 0 && r.Owner != owner {
			next = 0
			continue
		}
		err = DecodeEntries(r.Entries, func(e Entry) error {
			subject := codec.StateSubject(p, e.Vehicle)
			return b.Add(subject, codec.Seal(subject, append([]byte{0}, e.State...)))
		})
		if next, owner = r.Next, r.Owner; err != nil || next == 0 {
			return err
		}
	}
}

// maxVersion is the maximum length of the version string in a backup, in bytes.
const maxVersion = 100

// CheckBackup reads a backup to its end and returns a description: its version, its start, and the
// number of records of each kind. Its Authenticated is true if the backup was made with one of the
// given backup keys; without keys it is false. CheckBackup returns an error if any byte was
// changed, if a record cannot be decoded, or if a record has contents that no carstate service can
// have written. [RecordStore.BadBackup] is true for such an error. CheckBackup also returns an
// error if r cannot be read. After an error, the description is incomplete.
func CheckBackup(r io.Reader, keys ...string) (access.BackupInfo, error) {
	info, _, err := checkBackup(r, keys...)
	return info, err
}

// checkBackup is like CheckBackup, and also returns the keys, each once, with which the ids (vids)
// of its forgotten vehicles are hashed; nil if there are none.
func checkBackup(r io.Reader, keys ...string) (info access.BackupInfo, vidKeys [][]byte, err error) {
	b, header, err := backupfile.Open(r)
	if err != nil {
		return info, nil, err
	}
	if len(header.Version) > maxVersion || access.Printable(header.Version) != header.Version || header.Partitions < 0 {
		return info, nil, fmt.Errorf("%w (header: the version is missing or invalid)", backupfile.ErrUnfit)
	}
	parts := make(map[string]setsSeen)
	info = access.BackupInfo{
		Version: header.Version, Began: header.Began, Partitions: header.Partitions, Kinds: make(map[string]int),
	}
	for {
		r, err := b.Next()
		if err == io.EOF {
			info.Authenticated = slices.ContainsFunc(keys, b.Authentic)
			return info, vidKeys, nil
		}
		if err != nil {
			return info, nil, err
		}
		kind, rest, _ := strings.Cut(r.Subject, ".")
		if err := checkRecord(kind, rest, r.Body, parts); err != nil {
			return info, nil, err
		}
		if kind == codec.VIDKeysSubject {
			theirs, _ := decodeVIDKeys(r.Body) // checkRecord has already decoded it
			if vidKeys = withKeys(vidKeys, theirs.Keys); len(vidKeys) > maxVIDKeys {
				return info, nil, fmt.Errorf("%w (%s: %w)", backupfile.ErrUnfit, kind, errVIDKeys)
			}
		}
		info.Records++
		info.Kinds[kind]++
	}
}

// namesOf maps each kind of record to the number of names in its subject. A subject identifies a
// record; it consists of the kind and the names, separated by dots. For example, state.3.VID has
// the kind state and two names.
var namesOf = map[string]int{
	codec.VIDKeysSubject: 0, "tombstone": 1, "source": 1, "operator": 1, "token": 1, "road": 1,
	"sourceset": 2, "tokenset": 2, "tokenuse": 2, "state": 2,
}

// nameLetters are the characters that a name in a subject may contain.
const nameLetters = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

// validNames reports whether the names in rest, which follow the kind and a dot in a subject, are
// valid: their number is that in namesOf, each has 1 to 256 bytes (vehicle.MaxReportingID) and only
// nameLetters, and the second name of a state is a vid. Only a record with valid names can be
// stored again by a restore.
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
	return len(names) == namesOf[kind] && (kind != "state" || vehicle.CheckID(names[1]) == nil)
}

// setsSeen counts the set records (see setRecord) that were read so far for one credential. All set
// records of a grant contain the same random string (mark). A set record with another mark belongs
// to another grant, so the count n then begins again.
type setsSeen struct {
	mark string
	n    int
}

// checkRecord checks a record of a backup, whose subject consists of kind, a dot, and rest. The
// error is nil or
//
//   - [backupfile.ErrNewer], if the kind is unknown or a newer version wrote the record;
//   - [backupfile.ErrUnfit], if no service can have written the contents;
//   - [backupfile.ErrTorn], if the record is damaged in another way.
//
// Set records precede the credential's own record in the backup. checkRecord counts each of them in
// the map parts. If some of them are missing, the error for the credential's own record is
// [backupfile.ErrTorn].
func checkRecord(kind, rest string, body []byte, parts map[string]setsSeen) (err error) {
	if _, ok := namesOf[kind]; !ok {
		return fmt.Errorf("%w (unknown kind of record)", backupfile.ErrNewer)
	}
	var granted grantedRecord
	switch kind {
	case "state":
		_, err = codec.DecodeState(body)
	case "road":
		var tile road.Tile
		if tile, err = road.ParseTile(rest); err == nil {
			err = new(road.Map).Load(tile, body)
		}
	case "tombstone":
		_, err = decodeTombstone(kind+"."+rest, body)
	case codec.VIDKeysSubject:
		_, err = decodeVIDKeys(body)
	case "token", "source", "operator":
		_, granted, err = decodeCredential(Record{Subject: kind + "." + rest, Body: body})
	case "tokenuse":
		id, _, _ := strings.Cut(rest, ".")
		if _, err = decodeUsage(body); err == nil {
			if name := access.CheckName(access.TokenKind, id); name != nil {
				err = unfit{"usage", name}
			}
		}
	case "tokenset", "sourceset":
		var part setRecord
		if part, err = decodeSet(body); err == nil {
			owner, number, _ := strings.Cut(rest, ".")
			if n, nerr := strconv.Atoi(number); nerr != nil || n < 0 || n >= MaxBatch || strconv.Itoa(n) != number {
				return backupfile.ErrTorn
			}
			seen := parts[kind+owner]
			if seen.mark != part.Set {
				seen = setsSeen{mark: part.Set}
			}
			seen.n++
			parts[kind+owner] = seen
		}
	}
	if !validNames(kind, rest) {
		err = cmp.Or(err, codec.ErrDamaged)
	}
	if granted.Sets > 0 && parts[kind+"set"+rest] != (setsSeen{granted.Set, granted.Sets}) {
		err = codec.ErrDamaged
	}
	if u, ok := errors.AsType[unfit](err); ok {
		return fmt.Errorf("%w (%s: %w)", backupfile.ErrUnfit, u.kind, u.err)
	}
	switch {
	case errors.Is(err, codec.ErrNewer):
		return fmt.Errorf("%w (%w)", backupfile.ErrNewer, err)
	case err != nil:
		return backupfile.ErrTorn
	}
	return nil
}
