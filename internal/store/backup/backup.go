// Package backup copies what a running service keeps to a file, and verifies, compares and restores
// such a file. It never copies telemetry or the backup key.
package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/road"
	"example.org/carstate/internal/store"
	"example.org/carstate/internal/store/codec"
	"example.org/carstate/internal/vehicle"
)

type Service struct {
	*store.RecordStore
	engine    store.Engine
	config    store.Config
	tables    *access.Tables
	restoring sync.Mutex // held during a restore
}

// e, c and t are the ones of k.
func New(k *store.RecordStore, e store.Engine, c store.Config, t *access.Tables) *Service {
	return &Service{RecordStore: k, engine: e, config: c.WithDefaults(), tables: t}
}

// Tombstones come first, so that a reader knows all forgotten vehicles before it reads a state.
// States and roads follow. Each record is copied at some moment while the backup runs.
var backedUp = []struct {
	stream   string
	subjects []string
}{
	{codec.Sources, []string{codec.VIDKeysSubject, "tombstone.*", "source.*", "sourceset.*.*", "operator.*"}},
	{codec.Tokens, []string{"token.*", "tokenset.*.*", "tokenuse.*.*"}},
}

func (s *Service) Backup(ctx context.Context, w io.Writer, version string) (records int, err error) {
	key, err := s.BackupKey(ctx)
	if err != nil {
		return 0, err
	}
	b, err := newWriter(w, header{
		Version: version, Began: s.config.Now().UTC().Truncate(time.Millisecond), Partitions: s.engine.Partitions(),
	}, key)
	if err != nil {
		return 0, err
	}
	for _, part := range backedUp {
		err := s.engine.Scan(ctx, part.stream, part.subjects, func(r store.Record) error {
			if store.IsEmptied(r) {
				return nil
			}
			return b.add(r)
		})
		if err != nil {
			return 0, fmt.Errorf("cannot back up %s: %w", part.stream, err)
		}
	}
	for p := range s.engine.Partitions() {
		if err := s.backUpStates(ctx, b, p); err != nil {
			return 0, fmt.Errorf("cannot back up the states: %w", err)
		}
	}
	if err := s.EachRoad(ctx, b.add); err != nil {
		return 0, fmt.Errorf("cannot back up %s: %w", codec.Roads, err)
	}
	return b.n - 1, b.end()
}

// If another process becomes the owner, backUpStates begins again: a backup may have several states
// of a vehicle.
func (s *Service) backUpStates(ctx context.Context, b *writer, p int) error {
	owner := uint64(0)
	for next := 0; ; {
		r, err := s.AskOwner(ctx, p, &store.Question{Kind: store.AskStates, From: next})
		if err != nil {
			return err
		}
		if next > 0 && r.Owner != owner {
			next = 0
			continue
		}
		err = store.DecodeEntries(r.Entries, func(e store.Entry) error {
			return b.add(sealed(codec.StateSubject(p, e.Vehicle), e.State))
		})
		if next, owner = r.Next, r.Owner; err != nil || next == 0 {
			return err
		}
	}
}

func (s *Service) BackupKey(ctx context.Context) (string, error) {
	var r struct {
		Key string `json:"key"`
	}
	fresh, _ := access.NewSecret(access.BackupKind)
	const subject = codec.BackupKeySubject
	change := func(is store.Record) ([]store.Write, error) {
		if is.Seq == 0 {
			r.Key = fresh
			return store.AppendJSON(nil, subject, r)
		}
		if json.Unmarshal(is.Body, &r) != nil || access.Check(access.BackupKind, []byte(r.Key)) != nil {
			return nil, fmt.Errorf("%w: %s: not a valid backup key", codec.ErrDamaged, subject)
		}
		return nil, nil
	}
	_, err := store.Change(ctx, s.engine, s.config.Patience.Store, codec.Sources, subject, change)
	if err != nil {
		return "", fmt.Errorf("cannot load the backup key: %w", err)
	}
	return r.Key, nil
}

const maxVersion = 100

// Check describes a backup, which is authenticated if it was made with one of the keys.
// An error that the contents cause is an [access.BadBackup].
func Check(r io.Reader, keys ...string) (info access.BackupInfo, err error) {
	records := store.Sets{}
	b, h, err := open(r)
	if err != nil {
		return info, err
	}
	if len(h.Version) > maxVersion || access.Printable(h.Version) != h.Version || h.Partitions < 0 {
		return info, fmt.Errorf("%w (header: the version is missing or invalid)", errUnfit)
	}
	info = access.BackupInfo{Version: h.Version, Began: h.Began, Partitions: h.Partitions, Kinds: make(map[string]int)}
	err = b.each(func(r store.Record, kind string) error {
		info.Records++
		info.Kinds[kind]++
		return checkRecord(kind, r, records)
	})
	info.Authenticated = slices.ContainsFunc(keys, b.authentic)
	return info, err
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

func checkRecord(kind string, r store.Record, records store.Sets) (err error) {
	_, rest, _ := strings.Cut(r.Subject, ".")
	if _, ok := namesOf[kind]; !ok {
		return fmt.Errorf("%w (unknown kind of record)", errNewer)
	}
	switch kind {
	case "state":
		_, err = codec.DecodeState(r.Body)
	case "road":
		if tile, bad := road.ParseTile(rest); bad != nil || new(road.Map).Load(tile, r.Body) != nil {
			err = codec.ErrDamaged
		}
	default:
		err = records.Check(r)
	}
	if !validNames(kind, rest) {
		err = cmp.Or(err, codec.ErrDamaged)
	}
	return refusal(err)
}

// refusal makes an error of a record an [access.BadBackup], and leaves any other as it is.
func refusal(err error) error {
	_, unfit := errors.AsType[store.Unfit](err)
	switch {
	case errors.Is(err, codec.ErrNewer):
		return fmt.Errorf("%w (%w)", errNewer, err)
	case errors.Is(err, codec.ErrDamaged) && !unfit:
		return errTorn
	}
	return refuseUnfit(err)
}

func refuseUnfit(err error) error {
	if u, ok := errors.AsType[store.Unfit](err); ok {
		return fmt.Errorf("%w (%s: %w)", errUnfit, u.Kind, u.Err)
	}
	return err
}
