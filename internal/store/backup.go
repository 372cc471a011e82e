package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store/backupfile"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

// Tombstones come first, so that a reader knows all forgotten vehicles before it reads a state.
// States and roads follow. Each record is copied at some moment while the backup runs.
var backedUp = []struct {
	stream   string
	subjects []string
}{
	{codec.Sources, []string{codec.VIDKeysSubject, "tombstone.*", "source.*", "sourceset.*.*", "operator.*"}},
	{codec.Tokens, []string{"token.*", "tokenset.*.*", "tokenuse.*.*"}},
}

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

// If another process becomes the owner, it begins again: a backup may have several states of a
// vehicle.
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

const maxVersion = 100

// CheckBackup describes a backup, which is authenticated if it was made with one of the keys.
// [RecordStore.BadBackup] is true for an error that the contents cause.
func CheckBackup(r io.Reader, keys ...string) (access.BackupInfo, error) {
	info, _, err := checkBackup(r, keys...)
	return info, err
}

func checkBackup(r io.Reader, keys ...string) (info access.BackupInfo, vidKeys [][]byte, err error) {
	b, header, err := backupfile.Open(r)
	if err != nil {
		return info, nil, err
	}
	if len(header.Version) > maxVersion || access.Printable(header.Version) != header.Version || header.Partitions < 0 {
		return info, nil, fmt.Errorf("%w (header: the version is missing or invalid)", backupfile.ErrUnfit)
	}
	large := sets{}
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
		if err := checkRecord(kind, rest, r.Body, large); err != nil {
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

// namesOf is the number of names that follow the kind in a subject.
var namesOf = map[string]int{
	codec.VIDKeysSubject: 0, "tombstone": 1, "source": 1, "operator": 1, "token": 1, "road": 1,
	"sourceset": 2, "tokenset": 2, "tokenuse": 2, "state": 2,
}

const nameLetters = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

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

// The error is [backupfile.ErrNewer] if the kind is unknown or a newer version wrote it,
// [backupfile.ErrUnfit] if no service can have written it, and otherwise [backupfile.ErrTorn], also
// if set records, which precede their credential, are missing.
func checkRecord(kind, rest string, body []byte, large sets) (err error) {
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
		err = large.apply(Record{Subject: kind + "." + rest, Body: body})
	}
	if !validNames(kind, rest) {
		err = cmp.Or(err, codec.ErrDamaged)
	}
	if p := large[kind+"."+rest]; granted.Sets > 0 {
		if p == nil || p.mark != granted.Set || len(p.parts) != granted.Sets {
			err = codec.ErrDamaged
		}
		delete(large, kind+"."+rest)
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

// BackupKey creates and stores the key if there is none.
func (k *RecordStore) BackupKey(ctx context.Context) (string, error) {
	var r struct {
		Key string `json:"key"`
	}
	fresh, _ := access.NewSecret(access.BackupKind)
	const stream, subject = codec.Sources, codec.BackupKeySubject
	_, err := Change(ctx, k.engine, k.config.Patience.Store, stream, subject, func(is Record) ([]Write, error) {
		if is.Seq == 0 {
			r.Key = fresh
			return AppendJSON(nil, subject, r)
		}
		if json.Unmarshal(is.Body, &r) != nil || access.Check(access.BackupKind, []byte(r.Key)) != nil {
			return nil, unfit{subject, errors.New("not a valid backup key")}
		}
		return nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("cannot load the backup key: %w", err)
	}
	return r.Key, nil
}
